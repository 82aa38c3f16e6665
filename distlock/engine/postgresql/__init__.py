"""PostgreSQL in the place of ZooKeeper, for the same locks: the database that a site already has.

The server keeps a small tree of nodes in tables, with functions that a migration makes
(``tree.sql``): sessions with deadlines, ephemeral and sequential nodes, versions, transactions,
watches. `requests` names what a session asks of it, and `client` carries that over one connection
beside Django's own. `server` connects, and looks for `doctor`.

`docs/discussion/postgresql.md` says which promises hold here.
"""

from __future__ import annotations
