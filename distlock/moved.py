"""Keeps the old dotted paths of modules that have moved."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

#: The new place of each module of `distlock` that has moved.
MOVED: Final = {
    "beat": "celery.beat",
    "hold": "owner.hold",
    "leader": "locks.leader",
    "lease_hold": "lease.hold",
    "leases": "lease.persistent",
    "multilock": "locks.multilock",
    "mutex": "locks.mutex",
    "once": "celery.queued_once",
    "revocation": "locks.revocation",
    "rwlock": "locks.rwlock",
    "semaphore": "locks.semaphore",
    "semaphore_mutex": "locks.semaphore_mutex",
    "termination": "session.termination",
    "undertaker": "session.reaper",
    "znodes": "keys.znodes",
}


class _OldPaths(MetaPathFinder, Loader):
    """Import the module of the new path for the old one, with a `DeprecationWarning`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, module = name.partition(".")
        return ModuleSpec(name, self) if package == __package__ and module in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = f"{__package__}.{MOVED[old.partition('.')[2]]}"
        warnings.warn(f"{old} is {new} now.", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)


def keep_old_paths() -> None:
    """Resolve old paths, after all other finders, so that other imports cost nothing."""
    sys.meta_path.append(_OldPaths())
