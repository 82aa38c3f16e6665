"""Help for the tests of code that uses locks, without a server and with one.

Real servers and broken links are in the package django-distlock-chaos, with fixtures of its own.
Nothing is imported before it is used, pytest by none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from distlock.embedded.tree import MemoryTree as MemoryTree

    from .embedded import EmbeddedProcess as EmbeddedProcess
    from .switch import DistlockTestCase as DistlockTestCase
    from .switch import EmbeddedZooKeeperTestCase as EmbeddedZooKeeperTestCase
    from .switch import embedded_zookeeper as embedded_zookeeper
    from .switch import memory_zookeeper as memory_zookeeper
    from .tools import CapturedLock as CapturedLock
    from .tools import CapturedLocks as CapturedLocks
    from .tools import OtherHolder as OtherHolder
    from .tools import assert_locked as assert_locked
    from .tools import captured_locks as captured_locks
    from .tools import expire_session as expire_session
    from .tools import hold as hold
    from .tools import hold_permits as hold_permits
    from .tools import lose_connection as lose_connection

_MODULES: Final = {
    "distlock.embedded.tree": "MemoryTree",
    "distlock.testing.embedded": "EmbeddedProcess",
    "distlock.testing.switch": "DistlockTestCase EmbeddedZooKeeperTestCase embedded_zookeeper "
    "memory_zookeeper",
    "distlock.testing.tools": "CapturedLock CapturedLocks OtherHolder assert_locked captured_locks "
    "expire_session hold hold_permits lose_connection",
}
# Type checkers take the names from the aliases above.
__all__ = sorted(" ".join(_MODULES.values()).split())  # noqa: PLE0605

if not TYPE_CHECKING:  # a type checker would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        for module, names in _MODULES.items():
            if name in names.split():
                return getattr(import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
