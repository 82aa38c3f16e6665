"""The locks that a worker can be told to use: distlock's mutex, and kazoo's `Lock` to compare with.

Both are used as their documentation says. What differs between them is all in this file.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, LockTimeout, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from distlock import Hold, LockBusy, LockLost, LockUnavailable, signals, zk_lock
from distlock.keys import znode_name
from distlock.session import close_sessions, session_for

if TYPE_CHECKING:
    from kazoo.recipe.lock import Lock


class Busy(Exception):
    """Others have the lock."""


class Unavailable(Exception):
    """ZooKeeper did not answer."""


class Lost(Exception):
    """The lock was lost while it was held."""


class Grant(Protocol):
    """A lock that is held."""

    token: int

    def check(self) -> None:
        """Go on only if the lock is still held; raises `Lost`."""


class Recipe(Protocol):
    """A lock under test, in one process."""

    def hold(self, key: str, timeout: float) -> AbstractContextManager[Grant]:
        """Hold a lock; raises `Busy`, `Unavailable`, and `Lost` on leaving."""

    def send_something(self) -> None:
        """Send a request on the process's connection, and do not wait for the answer."""

    def close(self) -> None:
        """End the session."""


class DistlockGrant:
    """A `distlock.Hold`."""

    def __init__(self, hold: Hold) -> None:
        self.token = hold.token
        self._hold = hold

    def check(self) -> None:
        try:
            self._hold.check()
        except LockLost as error:
            raise Lost from error


class Distlock:
    """`zk_lock`, with the settings that are in force."""

    def __init__(self, lost: Callable[[str, int], None]) -> None:
        """Tell every loss to `lost`, with key and token."""
        self._receiver = lambda *, key, hold, **_: lost(key, hold.token)
        signals.lock_lost.connect(self._receiver)

    @contextmanager
    def hold(self, key: str, timeout: float) -> Iterator[Grant]:
        try:
            with zk_lock(key, timeout=timeout) as hold:
                yield DistlockGrant(hold)
        except LockBusy as error:
            raise Busy from error
        except LockUnavailable as error:
            raise Unavailable from error
        except LockLost as error:
            raise Lost from error

    def send_something(self) -> None:
        session = session_for()
        session.ask(session.children, session.root)

    def close(self) -> None:
        close_sessions()


class KazooGrant:
    """An acquired kazoo `Lock`. Its token is the node's sequence number."""

    def __init__(self, lock: Lock) -> None:
        self.token = int(lock.node[-10:])
        self._lock = lock

    def check(self) -> None:
        if not self._lock.is_acquired:
            raise Lost


class Kazoo:
    """kazoo's `Lock`, with a client that reconnects for ever."""

    def __init__(self, hosts: str, namespace: str, session_timeout: float) -> None:
        self._namespace = namespace
        self._client = KazooClient(hosts, timeout=session_timeout)
        self._client.start_async()

    @contextmanager
    def hold(self, key: str, timeout: float) -> Iterator[Grant]:
        # The data that distlock's nodes carry, which tells the nemesis whom to aim at.
        who = json.dumps({"pid": os.getpid(), "worker": threading.current_thread().name})
        lock = self._client.Lock(f"{self._namespace}/{znode_name(key)}", who)
        try:
            acquired = lock.acquire(blocking=timeout > 0, timeout=timeout or None)
        except LockTimeout as error:
            raise Busy from error
        except _KAZOO_ERRORS as error:
            raise Unavailable from error
        if not acquired:
            raise Busy
        try:
            yield KazooGrant(lock)
        finally:
            try:
                lock.release()
            except _KAZOO_ERRORS as error:
                raise Lost from error

    def send_something(self) -> None:
        with suppress(NoNodeError):
            self._client.get_children_async(self._namespace)

    def close(self) -> None:
        self._client.stop()


#: What kazoo's `Lock` lets through to its caller in an outage.
_KAZOO_ERRORS: tuple[type[Exception], ...] = (KazooException, KazooTimeoutError)


def make(options: dict[str, Any], lost: Callable[[str, int], None]) -> Recipe:
    """Return the recipe that `options` of a worker name."""
    if options["recipe"] == "kazoo":
        return Kazoo(options["hosts"], options["namespace"], options["session_timeout"])
    return Distlock(lost)
