"""The fault harness: real servers, real processes, faults aimed at whoever holds the lock.

`harness.run` starts it all; `manage.py distlock chaos` is its command.

- `schedule`: which faults, when, for how long: a pure function of the seed
- `nemesis`: finds the holder and carries the faults out; `network` cuts links between servers
- `fleet` and `worker`: the processes that do protected steps, each behind its own TCP proxies
- `recipes`: the lock under test: distlock's mutex, or kazoo's own `Lock` for comparison
- `register`: what the lock protects
- `history`, `timeline`, `checker`, `report`: what happened, and whether it was allowed to
"""
