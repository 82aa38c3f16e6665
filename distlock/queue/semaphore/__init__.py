"""The queue of a semaphore as a state machine: events in, effects out, and no I/O.

`machine` tells how it works, and `states` has its table. `queueing` is its way through the queue,
which is a fair one of `distlock.queue.machine`; `events` has the events and effects. `limits`
knows how many permits there are.
"""

from __future__ import annotations
