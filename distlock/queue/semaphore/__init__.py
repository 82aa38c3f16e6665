"""The queue of a semaphore as a state machine: events in, effects out, and no I/O.

`machine` tells how it works, and `states` has its table; `events` has the events and effects. The
queue is a fair one of `distlock.queue.machine`. `limits` knows how many permits there are.
"""

from __future__ import annotations
