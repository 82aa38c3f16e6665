"""What can go wrong, one class per cause.

::

    DistlockError
    ├── LockBusy            somebody else has it, and the time is up
    ├── LockUnavailable     ZooKeeper cannot be reached, or refuses
    │   └── TooManyLocks    this process holds and awaits as many as its session may
    ├── LockLost            you had it, and have it no longer
    ├── NotOwner            you release what you do not hold
    ├── LockInTransaction   a lock taken inside an open database transaction
    ├── DeadlockDetected    waiting on would never end
    ├── StaleToken          a write with the fencing token of a former holder
    ├── LockKeyError        a key that names nothing, or cannot be one
    └── IncompatiblePeer    a client with another lock recipe waits on the same path

Every class takes its message first and its facts as keyword arguments, so each of them survives
pickling (Celery and multiprocessing send exceptions between processes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .keys.znodes import printable

if TYPE_CHECKING:
    from .keys.znodes import Participant
    from .owner.hold import Hold


#: How many characters a message has at most: a key may have millions.
_LONGEST: Final = 4000


class DistlockError(Exception):
    """The base of all errors of this package: catch it to catch them all.

    Messages are printable and of limited length, whatever key or node they name.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message, _LONGEST))


class LockBusy(DistlockError):
    """The lock was not granted in time: others hold it or are ahead in line.

    Nothing is wrong. Try again later, wait longer (``timeout=``), or do without.

    :ivar key: the key that was asked for
    :ivar holder: the :class:`~distlock.keys.znodes.Participant` who holds it, as far as known
    :ivar waited: seconds spent waiting
    :ivar retry_after: seconds after which a new try makes sense (the ``RETRY_AFTER`` setting)
    :ivar using: the alias in ``DISTLOCK``
    """

    def __init__(
        self,
        message: str = "The lock is busy.",
        *,
        key: str = "",
        holder: Participant | None = None,
        waited: float = 0.0,
        retry_after: float = 1.0,
        using: str = "default",
    ) -> None:
        super().__init__(message)
        self.key = key
        self.holder = holder
        self.waited = waited
        self.retry_after = retry_after
        self.using = using


class LockUnavailable(DistlockError):
    """ZooKeeper could not be reached in time, or refused the request; the lock is not held.

    Nobody knows whether the lock is free. Do not go on without it: answer 503 and try again later,
    and look at the servers. The message names the hosts and the reason.
    """

    def __init__(
        self,
        message: str = "ZooKeeper is not available.",
        *,
        key: str = "",
        retry_after: float = 1.0,
        using: str = "default",
    ) -> None:
        super().__init__(message)
        self.key = key
        self.retry_after = retry_after
        self.using = using


class TooManyLocks(LockUnavailable):
    """The session of this process has as many nodes as the setting ``MAX_NODE_BYTES`` allows.

    The end of a session names all its nodes in one message. One that is longer than
    ``jute.maxbuffer`` takes a whole ensemble down (ZOOKEEPER-4306). Hold fewer locks at a time,
    spread them over more processes, or lock something greater.
    """


class LockLost(DistlockError):
    """The lock was held, and is not any more: see `reason`.

    Somebody else may be inside already. Stop, roll back, and let the fencing token protect what
    was written.

    :ivar hold: the `Hold` that was lost
    :ivar reason: why, as `Hold.lost_reason` says: ``"session"``, ``"broken"``, ``"max_hold"``, or
        ``"expired"``; empty where that is not known
    """

    def __init__(
        self,
        message: str = "The lock is not held any more.",
        *,
        hold: Hold | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.hold = hold
        self.reason = reason or (hold.lost_reason if hold is not None else "")

    def __reduce__(self) -> tuple[type[LockLost], tuple[str], dict[str, str]]:
        # A hold belongs to its process and does not travel.
        return type(self), (str(self),), {"reason": self.reason}


class NotOwner(DistlockError, RuntimeError):
    """A release by a thread, task or process that does not hold the lock, or a second release.

    Release in the thread or task that acquired, once for each time it acquired. ``with`` does.
    (Also a ``RuntimeError``, as :class:`threading.RLock` raises.)
    """


class LockInTransaction(DistlockError):
    """A lock was about to be taken inside an open transaction.

    It would be released before COMMIT, and the next holder would read the old rows.
    Take the lock first and open the transaction inside it: ``zk_lock(key, atomic=True)``.
    """


class DeadlockDetected(DistlockError):
    """Waiting would never end: who asks for the lock waits for a lock that it holds itself.

    It holds that directly (a reader that asks for the write lock of the same key), or others in a
    circle wait for one another, of whom the one who came last is told (`deadlocks`). Nothing was
    acquired, and what was held is still held. Release that, and take what you need at once or
    always in the same order: ``zk_multilock`` does.

    :ivar key: the key that was asked for
    :ivar using: the alias in ``DISTLOCK``
    :ivar cycle: the :class:`~distlock.keys.znodes.Participant` of each member of the cycle; empty
        where the caller waits for itself alone
    :ivar retry_after: seconds after which a new try makes sense (the ``RETRY_AFTER`` setting)
    """

    def __init__(
        self,
        message: str = "Waiting for this lock would never end.",
        *,
        key: str = "",
        using: str = "default",
        cycle: tuple[Participant, ...] = (),
        retry_after: float = 1.0,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.using = using
        self.cycle = cycle
        self.retry_after = retry_after


class StaleToken(DistlockError):
    """A fenced write was refused: a newer holder of the lock has written the row.

    This process has lost the lock, even if it does not know yet. Stop, roll back, and start again
    from the lock.

    :ivar token: the token of the refused write
    :ivar newer: the token in the row
    """

    def __init__(
        self,
        message: str = "A newer holder of the lock has written this.",
        *,
        token: int = 0,
        newer: int = 0,
    ) -> None:
        super().__init__(message)
        self.token = token
        self.newer = newer

    @classmethod
    def of(cls, model: type, token: int, *, newer: int) -> StaleToken:
        """Return the error for a write to `model` with `token` where the row has `newer`."""
        return cls(
            f"The write to {model.__name__} with the fencing token {token} was refused: a newer "
            f"holder of the lock (token {newer}) has written the row. This hold is lost; start "
            "again from the lock.",
            token=token,
            newer=newer,
        )


class LockKeyError(DistlockError, ValueError):
    """The key names nothing, names everything, or has another text in another process.

    ``stock:None`` and ``stock:{sku}`` would serialise the whole shop, and the text of a set depends
    on the process. Check the value before you lock.
    """


class IncompatiblePeer(DistlockError):
    """A client with another lock recipe waits or holds on the same path, and would not exclude us.

    Such are kazoo's own ``Lock``, Curator's ``LeaderLatch``, Curator's ``InterProcessMutex`` beside
    a `zk_rwlock`, and its ``InterProcessReadWriteLock`` beside a `zk_lock`. Both would believe that
    they hold. Use the same recipe on both sides, or another path.

    It is raised, too, where the queue is near the end of ZooKeeper's sequence numbers, and a client
    that does not begin it anew (Curator, or an older distlock) stays in it: pause that client.
    """
