"""A read-only snapshot of the tree: its locks, their holders and their waiters.

`tree` reads it, a `key_batch` at a time, into the values of `snapshot`, for the admin pages, the
commands, tests and the deadlock detector. `wait_graph` finds cycles in it.
"""

from __future__ import annotations
