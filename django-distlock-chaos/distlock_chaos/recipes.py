"""The locks that a worker can use: those of distlock, and kazoo's `Lock` to compare with.

All are used as their documentation says. The differences between them are all in this file.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, LockTimeout, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from distlock import (
    Hold,
    LockBusy,
    LockLost,
    LockUnavailable,
    signals,
    zk_lease,
    zk_lock,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
)
from distlock.conf import configuration
from distlock.engine.reply import ignore
from distlock.keys.templates import znode_name
from distlock.session.registry import close_sessions, observe_sessions, session_for

if TYPE_CHECKING:
    import random

    from kazoo.recipe.lock import Lock

    from distlock.lease.hold import LeaseHold
    from distlock.lease.persistent import PersistentLease


class Failure(Exception):
    """A call that ended without the lock.

    :ivar how: one word for the history
    """

    how: str


class Busy(Failure):
    """Others have the lock."""

    how = "busy"


class Unavailable(Failure):
    """ZooKeeper did not answer."""

    how = "unavailable"


class Lost(Failure):
    """The lock was lost while it was held."""

    how = "lost"


class Want(NamedTuple):
    """The keys that one call takes together, and as what: lock, read, write, permit or lease."""

    keys: tuple[str, ...]
    mode: str = "lock"


class Grant(Protocol):
    """A lock that is held."""

    key: str
    token: int

    def check(self) -> None:
        """Go on only if the lock is still held; raises `Lost`."""


class Recipe(Protocol):
    """A lock under test, in one process."""

    def choose(self, keys: Sequence[str], chance: random.Random) -> Want:
        """Choose what to take."""

    def alone(self, key: str) -> Want:
        """Return what takes one key so that nobody else can have it."""

    def hold(self, want: Want, timeout: float) -> AbstractContextManager[list[Grant]]:
        """Hold what is wanted; raises `Busy`, `Unavailable`, and `Lost` on leaving."""

    def send_something(self) -> None:
        """Send a request on the process's connection, and do not wait for the answer."""

    def close(self) -> None:
        """End the session."""


class DistlockGrant:
    """A `distlock.Hold`."""

    def __init__(self, hold: Hold) -> None:
        self.key, self.token = hold.key, hold.token
        self._hold = hold

    def check(self) -> None:
        try:
            self._hold.check()
        except LockLost as error:
            raise Lost from error


class Distlock:
    """`zk_lock`, with the settings that are in force."""

    mode = "lock"

    def __init__(self, lost: Callable[[str, int], None], began: Callable[[int], None]) -> None:
        """Report every loss to `lost`, with key and token, and every session's id to `began`."""
        self._receiver = lambda *, key, hold, **_: lost(key, hold.token)
        signals.lock_lost.connect(self._receiver)
        observe_sessions(
            lambda _conf, session_id, password: began(session_id) if password else None
        )

    def choose(self, keys: Sequence[str], chance: random.Random) -> Want:
        return Want((chance.choice(keys),), self.mode)

    def alone(self, key: str) -> Want:
        return Want((key,), self.mode)

    @contextmanager
    def hold(self, want: Want, timeout: float) -> Iterator[list[Grant]]:
        try:
            with self._block(want, timeout) as grants:
                yield grants
        except LockBusy as error:
            raise Busy from error
        except LockUnavailable as error:
            raise Unavailable from error
        except LockLost as error:
            raise Lost from error

    @contextmanager
    def _block(self, want: Want, timeout: float) -> Iterator[list[Grant]]:
        with self._lock(want, timeout) as hold:
            yield [DistlockGrant(hold)]

    def _lock(self, want: Want, timeout: float) -> AbstractContextManager[Hold]:
        return zk_lock(want.keys[0], timeout=timeout)

    def send_something(self) -> None:
        session = session_for()
        session.children(session.root, ignore)

    def close(self) -> None:
        close_sessions()


class ReadersAndWriters(Distlock):
    """`zk_rwlock`: two of three read."""

    mode = "write"

    def choose(self, keys: Sequence[str], chance: random.Random) -> Want:
        return Want((chance.choice(keys),), "write" if chance.randrange(3) == 0 else "read")

    def _lock(self, want: Want, timeout: float) -> AbstractContextManager[Hold]:
        lock = zk_rwlock(want.keys[0], timeout=timeout)
        return lock.write if want.mode == "write" else lock.read


class Permits(Distlock):
    """`zk_semaphore`.

    :ivar limit: how many permits each key has
    """

    mode = "permit"
    limit = 2

    def _lock(self, want: Want, timeout: float) -> AbstractContextManager[Hold]:
        return zk_semaphore(want.keys[0], self.limit, timeout=timeout)


class Several(Distlock):
    """`zk_multilock`, of one to three keys."""

    def choose(self, keys: Sequence[str], chance: random.Random) -> Want:
        return Want(tuple(chance.sample(keys, min(chance.randint(1, 3), len(keys)))))

    @contextmanager
    def _block(self, want: Want, timeout: float) -> Iterator[list[Grant]]:
        with zk_multilock(*want.keys, timeout=timeout) as holds:
            yield [DistlockGrant(hold) for hold in holds]


class LeaseGrant(DistlockGrant):
    """A `LeaseHold`, renewed once half of its time is over."""

    def __init__(self, lease: PersistentLease, hold: LeaseHold) -> None:
        super().__init__(hold)
        self._lease = lease

    def check(self) -> None:
        super().check()
        if self._hold.valid_for() < self._lease.ttl / 2:
            with suppress(LockUnavailable):  # what is left of it still counts
                try:
                    self._lease.renew()
                except LockLost as error:
                    raise Lost from error
            super().check()


class Leases(Distlock):
    """`zk_lease`, whose ttl is the session timeout."""

    mode = "lease"

    @contextmanager
    def _block(self, want: Want, timeout: float) -> Iterator[list[Grant]]:
        lease = zk_lease(want.keys[0], configuration().session_timeout, timeout=timeout)
        with lease as hold:
            yield [LeaseGrant(lease, hold)]


class KazooGrant:
    """An acquired kazoo `Lock`. Its token is the node's sequence number."""

    def __init__(self, key: str, lock: Lock) -> None:
        self.key = key
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

    def choose(self, keys: Sequence[str], chance: random.Random) -> Want:
        return Want((chance.choice(keys),))

    def alone(self, key: str) -> Want:
        return Want((key,))

    @contextmanager
    def hold(self, want: Want, timeout: float) -> Iterator[list[Grant]]:
        (key,) = want.keys
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
            yield [KazooGrant(key, lock)]
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


#: In an outage, kazoo's `Lock` raises these to its caller.
_KAZOO_ERRORS: tuple[type[Exception], ...] = (KazooException, KazooTimeoutError)


#: The recipes of distlock, by their names.
RECIPES: dict[str, type[Distlock]] = {
    "distlock": Distlock,
    "rwlock": ReadersAndWriters,
    "semaphore": Permits,
    "multilock": Several,
    "lease": Leases,
}


def make(
    options: dict[str, Any], lost: Callable[[str, int], None], began: Callable[[int], None]
) -> Recipe:
    """Return the recipe that `options` of a worker name.

    :param lost: is called with key and token of each hold that is lost
    :param began: is called with the id of each session that begins
    """
    if options["recipe"] == "kazoo":
        return Kazoo(options["hosts"], options["namespace"], options["session_timeout"])
    return RECIPES[options["recipe"]](lost, began)
