"""Redis and Valkey in the place of ZooKeeper, for the same locks.

The server keeps a small tree of nodes with a script of ours (``tree.lua``): sessions with
deadlines, ephemeral and sequential nodes, versions, transactions, watches. `requests` names what a
session asks of it, and `client` carries that over one connection, on which the events of watches
come in order with the replies. `address` reads ``HOSTS`` and connects with redis-py, and
`errors` explains what the server refuses. `library` has the script.

`docs/discussion/redis.md` says which promises hold here.
"""

from __future__ import annotations
