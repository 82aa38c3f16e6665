"""A ZooKeeper in pure Python, for development and tests: one process, nothing on disk, no replicas.

It speaks ZooKeeper's own protocol over TCP on loopback, so any client of ZooKeeper works with it.
`distlock.jute` reads and writes the fields of messages.
"""

from __future__ import annotations
