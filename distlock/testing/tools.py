"""Tools for tests of locked code: another holder, faults on demand, and a record of locks."""

from __future__ import annotations

import difflib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from distlock.conf import configuration, prefixed
from distlock.contenders.contender import QueuedContender
from distlock.contenders.semaphore import SemaphoreContender
from distlock.contenders.waiting import Attempt
from distlock.engine.calls import Call
from distlock.exceptions import LockBusy
from distlock.inspection.state import Contender
from distlock.inspection.tree import look, snapshot
from distlock.keys.templates import literal_key, znode_name
from distlock.queue.policies import FAIR, READER, WRITER
from distlock.queue.semaphore import Limit, whole
from distlock.session.reaper import end_session
from distlock.session.registry import session_for
from distlock.session.session import Session
from distlock.signals import lock_acquired, lock_contended, lock_failed, lock_lost

if TYPE_CHECKING:
    from distlock.contenders.waiting import Waiter

#: How long these tools wait for what a server does at once, in seconds.
PATIENCE: Final = 15.0

_POLICIES: Final = {"lock": FAIR, "read": READER, "write": WRITER}


# --- somebody else -------------------------------------------------------------------------------


class OtherHolder:
    """Somebody else who holds a lock, over a session of its own; see `hold` and `hold_permits`."""

    def __init__(self, key: str, session: Session, contender: Waiter) -> None:
        self.key = key
        self._session = session
        self._contender = contender

    def release(self) -> None:
        """Give the lock back before the block ends; from any thread, and once more without harm."""
        self._contender.leave()

    def die(self) -> None:
        """Let the server end the session, as it does some time after a process was killed."""
        _expire(self._session)
        self._contender.leave()


@contextmanager
def hold(
    key: str,
    *,
    by: str = "another process",
    using: str = "default",
    kind: Literal["lock", "read", "write"] = "lock",
) -> Iterator[OtherHolder]:
    """Let somebody else hold a lock for the block, over another session than this process's.

    ::

        with hold("stock:42", by="the warehouse"):
            response = client.post("/buy/42")
        assert response.status_code == 423

    :param by: who that is: what ``LockBusy.holder`` and the admin show
    :param using: the alias in ``DISTLOCK``
    :param kind: "lock" for `zk_lock`, "read" and "write" for a side of `zk_rwlock`
    :raises LockBusy: the lock was held already, and was not released within 15 s
    :raises LockUnavailable: there is no server, and no `memory_zookeeper`
    """
    if kind not in _POLICIES:
        raise ValueError(f"kind is one of {', '.join(_POLICIES)}, not {kind!r}.")
    contender_for = partial(QueuedContender, policy=_POLICIES[kind])
    with _another(prefixed(literal_key(key), using), by, using, contender_for) as other:
        yield other


@contextmanager
def hold_permits(
    key: str, permits: int, *, by: str = "another process", using: str = "default"
) -> Iterator[OtherHolder]:
    """Let somebody else hold permits of `zk_semaphore` or `zk_limited` for the block, as `hold`.

    ::

        with hold_permits("customer:7", 3):
            response = client.post("/customers/7/report")
        assert response.status_code == 429

    :param permits: how many, whatever the limit is and others hold
    :param by: who that is, as in `hold`
    :param using: the alias in ``DISTLOCK``
    :raises LockBusy: somebody waited for permits already, and went on for 15 s
    :raises LockUnavailable: there is no server, and no `memory_zookeeper`
    """
    key = prefixed(literal_key(key), using)
    wanted = whole(permits, "permits")
    contender_for = partial(SemaphoreContender, limit=_NoLimit(key, sys.maxsize), wanted=wanted)
    with _another(key, by, using, contender_for) as other:
        yield other


class _NoLimit(Limit):
    """Allows any number of permits, and tells peers of no limit."""

    def read(self, data: bytes) -> bool:
        return False


@contextmanager
def _another(
    key: str, by: str, using: str, contender_for: Callable[..., Waiter]
) -> Iterator[OtherHolder]:
    def granted(attempt: Attempt[Waiter]) -> Waiter:
        if attempt.outcome() is None:
            raise LockBusy(
                f"{key!r} cannot be held for the block: others hold it or wait for it. Begin the "
                "block before them.",
                key=key,
                using=using,
                waited=attempt.waited,
            )
        return attempt.contender

    with closing(Session(configuration(using))) as session:
        attempt = Attempt(
            session,
            key,
            PATIENCE,
            partial(
                contender_for,
                session,
                f"{session.root}/{znode_name(key)}",
                key=key,
                data=json.dumps({"v": 1, "owner": by[:200]}).encode(),
            ),
        )
        contender = Call(partial(attempt.steps, granted), attempt.give_up).run()
        try:
            yield OtherHolder(key, session, contender)
        finally:
            contender.leave()


# --- faults --------------------------------------------------------------------------------------


def expire_session(using: str = "default") -> None:
    """Let the server end this process's session, and with it all locks; return in the next one.

    All holds of the alias are lost for good: `Hold.check` raises, ``lock_lost`` is sent.

    :param using: the alias in ``DISTLOCK``
    """
    session = session_for(using)
    _await(lambda: session.id, session)
    _expire(session)


@contextmanager
def lose_connection(using: str = "default") -> Iterator[None]:
    """Be without a connection for the block, as when the network fails.

    Within it, calls raise `LockUnavailable` after ``CONNECT_TIMEOUT``. A hold survives a short
    loss, and is lost by one of ⅔ of ``SESSION_TIMEOUT``.

    :param using: the alias in ``DISTLOCK``
    """
    session = session_for(using)
    client: Any = session.make
    _await(lambda: session.connected, session)
    client.cut_off = True
    client.drop()
    try:
        _await(lambda: not session.connected, session)
        yield
    finally:
        client.cut_off = False
        _await(lambda: session.connected, session)


def _expire(session: Session) -> None:
    client: Any = session.make
    session_id, password = client.credentials
    end_session(session.conf, session_id, password, PATIENCE)
    if not client.cut_off:
        _await(lambda: session.connected and session.id != session_id, session)


def _await(condition: Any, session: Session) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise session.unavailable("")
        time.sleep(0.005)


# --- what is locked ------------------------------------------------------------------------------


def assert_locked(key: str, *, using: str = "default") -> tuple[Contender, ...]:
    """Fail unless somebody holds `key`: a lock, a read/write lock, a semaphore or a lease.

    The error names the keys that are held, and one that is much like `key`.

    :param using: the alias in ``DISTLOCK``
    :return: who holds it
    :raises AssertionError: nobody does
    """
    key = prefixed(literal_key(key), using)
    holders = tuple(one for lock in look(key, using).locks for one in lock.holders)
    if holders:
        return holders
    held = sorted({lock.key for lock in snapshot(using).locks if lock.holding})
    near = difflib.get_close_matches(key, held, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    there = f"Held are: {', '.join(map(repr, held))}." if held else "No lock is held at all."
    raise AssertionError(f"Nobody holds {key!r}.{hint} {there}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedLock:
    """One outcome of taking a lock.

    :ivar outcome: "acquired"; "busy" when others had it; "failed" by an error; "lost" when a hold
        was lost
    :ivar waited: seconds; 0 for "lost"
    :ivar error: why it failed
    """

    key: str
    outcome: Literal["acquired", "busy", "failed", "lost"]
    using: str = "default"
    waited: float = 0.0
    error: BaseException | None = None


class CapturedLocks(list[CapturedLock]):
    """The records of `captured_locks`, in order."""

    def keys(self, outcome: str = "acquired") -> list[str]:
        """Return the keys with this outcome, in order."""
        return [one.key for one in self if one.outcome == outcome]


@contextmanager
def captured_locks() -> Iterator[CapturedLocks]:
    """Record which locks the block takes, in all threads of this process, and with what outcome.

    ::

        with captured_locks() as locks:
            checkout(cart)
        assert locks.keys() == ["cart:7", "stock:42"]
        assert locks.keys("busy") == []

    Entering again what is held already is no outcome.
    """
    captured = CapturedLocks()

    def take(outcome: Any, **facts: Any) -> None:
        known = {name: facts[name] for name in ("key", "using", "waited", "error") if name in facts}
        captured.append(CapturedLock(outcome=outcome, **known))

    receivers = {
        lock_acquired: partial(take, "acquired"),
        lock_contended: partial(take, "busy"),
        lock_failed: partial(take, "failed"),
        lock_lost: partial(take, "lost"),
    }
    for signal, receiver in receivers.items():
        signal.connect(receiver, weak=False)
    try:
        yield captured
    finally:
        for signal, receiver in receivers.items():
            signal.disconnect(receiver)
