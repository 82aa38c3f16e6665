"""A read-only snapshot of the tree: its locks, their holders and their waiters."""

from __future__ import annotations

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
