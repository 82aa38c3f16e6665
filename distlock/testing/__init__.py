"""Help for the tests of code that uses locks, without a server and with one.

Without a server: `memory_zookeeper`, `DistlockTestCase`, and the pytest fixture
``distlock_memory``. With an embedded one, for several processes: `embedded_zookeeper`,
`EmbeddedZooKeeperTestCase`, and the fixture ``zookeeper_embedded``. For both, and for a real
server: `hold`, `expire_session`, `assert_locked`, `captured_locks`.

Real servers and broken links are in the package django-distlock-chaos, with fixtures of its own.

Nothing is imported before it is used, pytest by none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distlock.embedded.tree import MemoryTree

    from .embedded import EmbeddedProcess
    from .switch import (
        DistlockTestCase,
        EmbeddedZooKeeperTestCase,
        embedded_zookeeper,
        memory_zookeeper,
    )
    from .tools import (
        CapturedLock,
        CapturedLocks,
        OtherHolder,
        assert_locked,
        captured_locks,
        expire_session,
        hold,
        lose_connection,
    )

__all__ = [
    "CapturedLock",
    "CapturedLocks",
    "DistlockTestCase",
    "EmbeddedProcess",
    "EmbeddedZooKeeperTestCase",
    "MemoryTree",
    "OtherHolder",
    "assert_locked",
    "captured_locks",
    "embedded_zookeeper",
    "expire_session",
    "hold",
    "lose_connection",
    "memory_zookeeper",
]

_MODULES = {
    "DistlockTestCase": "distlock.testing.switch",
    "EmbeddedProcess": "distlock.testing.embedded",
    "EmbeddedZooKeeperTestCase": "distlock.testing.switch",
    "MemoryTree": "distlock.embedded.tree",
    "embedded_zookeeper": "distlock.testing.switch",
    "memory_zookeeper": "distlock.testing.switch",
}

if not TYPE_CHECKING:  # a type checker would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES.get(name, f"{__name__}.tools")), name)
