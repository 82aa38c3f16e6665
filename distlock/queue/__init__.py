"""The wait queue: one node a contender, in the order of their numbers.

`contender` is the life of one node, from being created to being deleted, through every lost reply.
`order` decides whose turn it is, `semaphore_queue` and `semaphore_limits` for a semaphore. Of the
contenders of one process (`local_contenders`), one hands the lock to the next without asking the
server (`handoff`), and a `batch` shares one node. Callers wait in `waiting`; the `timer` calls what
is due.
"""

from __future__ import annotations
