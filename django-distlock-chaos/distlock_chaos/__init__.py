"""The fault harness: real servers, real processes, faults aimed at whoever holds the lock.

`harness.run` starts it all; `command` is `manage.py distlock chaos`.

- `schedule`: which faults, when, for how long: a pure function of the seed
- `site` and `redis_site`: the servers of a run; `tree`: the locks in them
- `server`: real ZooKeeper servers; `install` finds them, `ports` free ports, `guard` ends them
- `fixtures`: the pytest plugin, which gives them to tests
- `serving`: runs them for `manage.py distlock server`
- `redis_server`, `redis_sentinel`: real Redis servers; `postgres_server`: a real PostgreSQL;
  `clock`: a time of day that can be set
- `nemesis`: carries the faults out; `aim` finds the holder, `network` cuts links between servers
- `scenes`: faults with a plot, which strike at one exact moment
- `fleet` and `worker`: the processes that do protected steps, each behind its own `proxy`
- `recipes`: the lock under test: one of distlock's, or kazoo's own `Lock` for comparison
- `register`: what the lock protects
- `history`: what happened; `analysis` tells whether it was allowed
"""
