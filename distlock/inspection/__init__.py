"""A read-only snapshot of the tree: which process holds what, and which wait for it.

`tree` reads it, a `key_batch` at a time, and `snapshot` is what the readers get: the admin pages,
the commands, the checks of tests, and the deadlock detector, by the `wait_graph`.
"""

from __future__ import annotations
