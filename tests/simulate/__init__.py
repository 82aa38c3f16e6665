"""One seed replays everything: several processes, their servers, links and clocks on one thread.

``python -m tests.simulate --seed N`` replays one schedule and prints what happens in it.

- `world` has the true time and what is to happen in it, `links` the connections.
- `tree` and `server` are the ensemble: what a leader and its followers do, by ZooKeeper's sources.
- `client` takes the place of `distlock.engine.zookeeper`, and `process` those of threads and clocks
  in distlock. From `Session` up, and in `Heartbeat` and `SessionDeadline`, all is distlock's own.
- `redis_server` is the server of every eighth schedule, and the sockets of distlock's own client.
- `callers` are threads and tasks that take locks as users do, `faults` break something meanwhile,
  and `judge` says what must not be.
- `forks` lets the simulator fork with a process.
- `schedule` makes all of that from a seed. `mutations` takes safety measures of distlock back.
"""

from __future__ import annotations
