"""Defines the errors, one class per cause.

Every class takes its message first and its facts as keyword arguments, so each of them survives
pickling (Celery and multiprocessing send exceptions between processes).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Final, Protocol

from .keys.znodes import Participant
from .text import printable

#: The most characters of a message: a key may have millions.
_LONGEST: Final = 4000


@dataclass(eq=False, repr=False)
class DistlockError(Exception):
    """The base of all errors of this package: catch it to catch them all.

    Messages are printable and of limited length, whatever key or node they name.
    """

    message: str = ""

    def __post_init__(self) -> None:
        self.message = printable(self.message, _LONGEST)
        super().__init__(self.message)


@dataclass(eq=False, repr=False)
class LockBusy(DistlockError):
    """The lock was not granted in time: others hold it or are ahead in the queue.

    Nothing is wrong. Try again later, wait longer (``timeout=``), or do without.

    :ivar key: the requested key
    :ivar template: the template that it was made from, if any: which rule of a `zk_limited` refused
    :ivar holder: the :class:`~distlock.keys.znodes.Participant` that holds it, as far as known
    :ivar waited: seconds spent waiting
    :ivar retry_after: seconds after which a new try makes sense (the ``RETRY_AFTER`` setting)
    :ivar using: the alias in ``DISTLOCK``
    """

    message: str = "The lock is busy."
    _: KW_ONLY
    key: str = ""
    template: str = ""
    holder: Participant | None = None
    waited: float = 0.0
    retry_after: float = 1.0
    using: str = "default"


class LimitReached(LockBusy):
    """Too few permits of a semaphore, or of `zk_limited`, were free in time.

    Nothing is wrong. A view answers 429; in a task, try again later, or raise the limit.
    """


@dataclass(eq=False, repr=False)
class LockUnavailable(DistlockError):
    """The lock server could not be reached in time, or refused the request; the lock is not held.

    Nobody knows whether the lock is free. Do not go on without it, unless you mean to
    (``on_unavailable="proceed"``): answer 503, try again later, and check the servers. The message
    names the hosts and the reason.
    """

    message: str = "The lock server is not available."
    _: KW_ONLY
    key: str = ""
    retry_after: float = 1.0
    using: str = "default"


class TooManyLocks(LockUnavailable):
    """The session of this process has as many nodes as the setting ``MAX_NODE_BYTES`` allows.

    The end of a session names all its nodes in one message. One that is longer than
    ``jute.maxbuffer`` takes a whole ensemble down (ZOOKEEPER-4306). Hold fewer locks at a time,
    spread them over more processes, or lock a larger unit.
    """


class LostHold(Protocol):
    """The facts of a lost `Hold` for the message; see there."""

    key: str
    using: str
    template: str
    path: str
    token: int

    @property
    def lost_reason(self) -> str: ...


@dataclass(eq=False, repr=False)
class LockLost(DistlockError):
    """The lock was held, and is no longer: see `reason`.

    Somebody else may hold it already. Stop, roll back, and let the fencing token protect your
    writes.

    :ivar hold: the `Hold` that was lost
    :ivar reason: the reason, as in `Hold.lost_reason`: ``"session"``, ``"broken"``, ``"max_hold"``,
        or ``"expired"``; empty if unknown
    """

    message: str = "The lock is not held any more."
    _: KW_ONLY
    hold: LostHold | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reason = self.reason or (self.hold.lost_reason if self.hold is not None else "")

    def __reduce__(self) -> tuple[type[LockLost], tuple[str], dict[str, str]]:
        # A hold belongs to its process and does not travel.
        return type(self), (str(self),), {"reason": self.reason}


class NotOwner(DistlockError, RuntimeError):
    """A release by a thread, task or process that does not hold the lock, or a second release.

    Release in the thread or task that acquired, once for each acquire. ``with`` does so.
    (Also a ``RuntimeError``, as :class:`threading.RLock` raises.)
    """


class LockInTransaction(DistlockError):
    """A lock cannot be taken inside an open transaction.

    It would be released before COMMIT, and the next holder would read the old rows.
    Take the lock first and open the transaction inside it: ``zk_lock(key, atomic=True)``.
    """


@dataclass(eq=False, repr=False)
class DeadlockDetected(DistlockError):
    """The wait would never end: the caller already holds what it waits for.

    It holds that itself (a reader that asks for the write lock of the same key), or it is the
    newest waiter of a cycle (`deadlocks`). It has not acquired the lock, and still holds its other
    locks. Release them, and take all locks at once or always in the same order: ``zk_multilock``
    does.

    :ivar key: the requested key
    :ivar using: the alias in ``DISTLOCK``
    :ivar cycle: the :class:`~distlock.keys.znodes.Participant` of each member of the cycle; empty
        if the caller waits only for itself
    :ivar retry_after: seconds after which a new try makes sense (the ``RETRY_AFTER`` setting)
    """

    message: str = "Waiting for this lock would never end."
    _: KW_ONLY
    key: str = ""
    using: str = "default"
    cycle: tuple[Participant, ...] = ()
    retry_after: float = 1.0


@dataclass(eq=False, repr=False)
class StaleToken(DistlockError):
    """A fenced write was refused: a newer holder of the lock has written the row.

    This process has lost the lock, even if it does not know yet. Stop, roll back, and start again
    from the lock.

    :ivar token: the token of the refused write
    :ivar newer: the token in the row
    """

    message: str = "A newer holder of the lock has written this."
    _: KW_ONLY
    token: int = 0
    newer: int = 0

    @classmethod
    def of(cls, model: type, token: int, *, newer: int) -> StaleToken:
        """Return the error for a write to `model` with `token` to a row with `newer`.

        :meta private:
        """
        return cls(
            f"The write to {model.__name__} with the fencing token {token} was refused: a newer "
            f"holder of the lock (token {newer}) has written the row. This hold is lost; start "
            "again from the lock.",
            token=token,
            newer=newer,
        )


class LockKeyError(DistlockError, ValueError):
    """The key is empty, is the same for all values, or differs from process to process.

    ``stock:None`` and ``stock:{sku}`` would serialise the whole shop, and the text of a set depends
    on the process. Check the value before you lock.
    """


class IncompatiblePeer(DistlockError):
    """A client with another lock recipe uses the same path, and would not exclude us.

    Examples are kazoo's own ``Lock``, Curator's ``LeaderLatch``, Curator's ``InterProcessMutex``
    beside a `zk_rwlock`, and its ``InterProcessReadWriteLock`` beside a `zk_lock`. Both would
    believe that they hold the lock. Use the same recipe on both sides, or another path.

    It also means that the queue is near the end of ZooKeeper's sequence numbers, and a client that
    does not begin it anew (Curator, or an older distlock) stays in it: pause that client.
    """
