"""One ZooKeeper session for each process and alias, from its start to its end.

`registry` opens a `session` when a lock first needs one, and forgets it in a forked child. The
session sends `requests`, shares `watches`, and deletes its nodes for certain (`guaranteed_delete`).
Callers ask by `programs`, among them `bulk_reads`, which reads many nodes, and `patience` tells how
long they wait. `termination` ends sessions on SIGTERM, and `reaper` those of killed processes.
`server_time` and `lease_clock` measure time by the server's clock.
"""

from __future__ import annotations
