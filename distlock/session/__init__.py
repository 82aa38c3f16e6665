"""One ZooKeeper session for each process and alias, from its start to its end.

`session` opens it when a lock first needs it, forgets it in a forked child, deletes nodes for
certain, and shares watches. `termination` ends it on SIGTERM, `ending` by its id and password from
another process, and `reaper` has that done for processes that were killed. `server_time` and
`lease_clock` measure time by the server's clock, and `node_bytes` the size of the request that
ends a session.
"""

from __future__ import annotations
