"""The wait queue: one node a contender, in the order of their numbers.

`contender` is the life of one node, from being created to being deleted, through every lost reply.
`order` decides whose turn it is, `semaphore_queue` and `semaphore_limits` for a semaphore. Of the
contenders of one process (`local_contenders`), one hands the lock to the next without asking the
server (`handoff`), and a `batch` shares one node. A caller's wait is an attempt (`waiting`), and
`calls` runs it, blocking or awaiting.

`machine` will take the place of `contender`, `order`, `handoff` and `local_contenders`: the same
life of a node, without I/O. It is made of `states`, `events` (and effects), `policies` (whom to
wait for), `joining` (how to get a node) and `local_line` (the contenders of one process). In the
same way the room `semaphore` will take the place of `semaphore_queue`.
"""

from __future__ import annotations
