"""The fault harness: real servers, real processes, faults aimed at whoever holds the lock.

`harness.run` starts it all; `manage.py distlock chaos` is its command.

- `schedule`: which faults, when, for how long: a pure function of the seed
- `site`: the servers, of ZooKeeper or Redis; `tree`: the locks in them
- `nemesis`: carries the faults out; `aim` finds the holder, `network` cuts links between servers
- `scenes`: faults with a plot, which strike at one exact moment
- `fleet` and `worker`: the processes that do protected steps, each behind its own TCP proxies
- `recipes`: the lock under test: one of distlock's, or kazoo's own `Lock` for comparison
- `register`: what the lock protects
- `history`: what happened; `analysis` tells whether it was allowed
"""
