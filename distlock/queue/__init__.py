"""The wait queue: one node a contender, in the order of their numbers. Without I/O.

`machine` is the life of one contender, from joining to leaving, through every lost reply: events
go in, effects come out, both as plain tuples (`events`). `states` has the table of what happens in
which state. `policies` says whom to wait for, and `local_line` knows the contenders of one process,
of which one hands the lock to the next. `semaphore` takes permits in a few steps over such
contenders.

Here is no thread, clock, socket or lock; the room `contenders` drives the machines on a session.
"""

from __future__ import annotations
