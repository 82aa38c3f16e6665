"""A read-only snapshot of the tree: its locks, their holders and their waiters.

`tree` reads it, a `key_batch` at a time, into the values of `state`, for the admin pages, the
commands, tests and the deadlock detector. `wait_graph` finds cycles in it. The names in `__all__`
are public.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distlock.keys.znodes import Participant

    from .state import Contender, Lock, Snapshot
    from .tree import look, snapshot
    from .wait_graph import Cycle, Link, deadlocks

__all__ = [
    "Contender",
    "Cycle",
    "Link",
    "Lock",
    "Participant",
    "Snapshot",
    "deadlocks",
    "look",
    "snapshot",
]

_MODULES = {
    "Cycle": ".wait_graph",
    "Link": ".wait_graph",
    "Participant": "distlock.keys.znodes",
    "deadlocks": ".wait_graph",
    "look": ".tree",
    "snapshot": ".tree",
}

if not TYPE_CHECKING:  # a type checker would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used; `models` needs `state` only."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES.get(name, ".state"), __name__), name)
