"""Contenders: the wait queue on the wire.

A `contender` feeds a machine of `queue` with the server's answers and with what its caller posts,
and carries the effects out on a session. Its `grant` knows whether the lock is still held. A
`batch` shares one node among callers of this process, who have the lock in turns. `semaphore` has a
contender in the queue, and one for each permit. A caller's wait is an attempt (`waiting`).
"""

from __future__ import annotations
