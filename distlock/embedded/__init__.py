"""A ZooKeeper in pure Python, for development and tests: one process, nothing on disk, no replicas.

It speaks ZooKeeper's own protocol over TCP on loopback, so any client of ZooKeeper works with it.
Bytes come in; replies, watch events and log lines go out. From the socket inwards:

- `shared`: finds or starts the server that all processes of a user share
- `__main__`: runs a server as a process of its own
- `server`: listens, cuts the bytes of clients into messages, and ends sessions and nodes whose time
  is over, on one thread
- `requests`: carries out the requests of a connection on the tree, with its ACLs and errors
- `tree`: the nodes, and who watches them
- `rules`: the errors, and who may do what with a node

`distlock.jute` reads and writes the fields of messages.
"""

from __future__ import annotations
