"""Lets many read or one write: a port of Curator's ``InterProcessReadWriteLock``.

Readers and writers share one queue. A writer waits for all ahead, a reader for the writers ahead,
so later readers do not starve a queued writer. `queue` decides whose turn it is. The two locks of
one key are mutexes with nodes of their own kind.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from distlock.conf import UNSET, prefixed
from distlock.contenders.contender import QueuedContender
from distlock.exceptions import DeadlockDetected
from distlock.keys import znodes
from distlock.keys.templates import filled
from distlock.queue.policies import READER, WRITER, downgraded

from .lock import Busy, OnUnavailable, Options
from .mutex import IDENTITIES, Mutex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distlock.keys.znodes import NodeName, Participant
    from distlock.owner.hold import Held
    from distlock.owner.owner import Owner


# No znode name has a "/". The writer's sorts before the reader's: the order in which one owner can
# have both.
_, _WRITE, _READ = IDENTITIES


class ReadWriteLock:
    """A lock that many may hold for reading, or one for writing. `zk_rwlock` makes it.

    Source: Curator's ``InterProcessReadWriteLock``.

    :ivar read: the readers' lock, a `Mutex`
    :ivar write: the writers' lock, a `Mutex`
    """

    def __init__(self, key: str, options: Options) -> None:
        self.read: Mutex = _ReadLock(key, options)
        self.write: Mutex = _WriteLock(key, options)

    def __repr__(self) -> str:
        return f"zk_rwlock({self.read.key!r}, using={self.read.using!r})"


class _Side(Mutex):
    """One of the two locks of a key, held and counted separately."""

    _reads: bool

    def __init__(self, key: str, options: Options) -> None:
        super().__init__(key, options)
        self._id = (self.using, self._name + (_READ if self._reads else _WRITE))

    def __repr__(self) -> str:
        side = "read" if self._reads else "write"
        return f"zk_rwlock({self.key!r}, using={self.using!r}).{side}"

    def _participants(self, below: str = "", **how: Any) -> list[Participant]:
        return super()._participants(below, order=self._mine, **how)

    def holder(self) -> Participant | None:
        """Return the holder: the writer, or the first of the readers. Asks the server."""
        # A writer that reads, too, has two nodes with the same number.
        first = super()._participants(first=2)
        heads = [one for one in first if one.sequence == first[0].sequence]
        return next((one for one in heads if self._mine([one.path.rpartition("/")[2]])), None)

    def _mine(self, names: Iterable[str]) -> list[NodeName]:
        # Any other node excludes as a writer does, such as that of a mutex on the same key.
        return [node for node in znodes.in_line(names) if (node.kind == znodes.READ) == self._reads]


class _ReadLock(_Side):
    _reads = True

    def _join_other_kind(self, held: Held) -> None:
        if held.grant.kind != znodes.WRITE:
            super()._join_other_kind(held)

    def _contender_for(self, owner: Owner) -> Callable[..., QueuedContender]:
        write = owner.held.get((self.using, self._name + _WRITE))
        if write is None:
            return partial(QueuedContender, policy=READER)
        write.hold.check()
        return partial(
            QueuedContender, policy=downgraded(cast("QueuedContender", write.grant).machine)
        )


class _WriteLock(_Side):
    _reads = False

    def _join_other_kind(self, held: Held) -> None:
        if held.grant.kind != znodes.READ:
            super()._join_other_kind(held)
        held.hold.check()
        raise DeadlockDetected(
            f"{self!r} would wait for ever: the caller holds it for reading. Release the read lock "
            "first, or take the write lock from the start: inside it you can take the read lock, "
            "and keep that.",
            key=self.key,
            using=self.using,
        )

    def _contender_for(self, owner: Owner) -> Callable[..., QueuedContender]:
        return partial(QueuedContender, policy=WRITER)


def zk_rwlock(
    key: str,
    *,
    timeout: float | timedelta | None = UNSET,
    using: str = "default",
    atomic: bool | str = False,
    until: Literal["block", "commit"] = "block",
    on_revoke: Callable[[Mutex], object] | None = None,
    max_hold: float | timedelta | None = None,
    max_waiters: int | None = None,
    cancel_on_loss: bool = False,
    busy: Busy | None = None,
    on_unavailable: OnUnavailable = "raise",
    **values: Any,
) -> ReadWriteLock:
    """Return the read/write lock named `key`: many may read, or one may write.

    ::

        prices = zk_rwlock("prices", timeout=2)

        with prices.read:
            ...
        with prices.write as hold:
            ...

    Both locks are reentrant. A writer may also read, and keeps reading if it releases the write
    lock first: no other writer comes between. A reader cannot begin to write, since it would wait
    for itself: that raises `DeadlockDetected` at once.

    :param key: the name of the lock: ``"prices"``, or a template, as in `zk_lock`; `zk_lock` of the
        same key excludes both
    :param timeout: seconds to wait, as in `zk_lock`
    :param using: the alias in ``DISTLOCK``
    :param atomic: opens a database transaction inside either lock, as in `zk_lock`
    :param until: "commit" keeps either until an open transaction has ended, as in `zk_lock`
    :param on_revoke: called with the lock, reader's or writer's, as in `zk_lock`
    :param max_hold: seconds (number or timedelta) after which a hold of either is given up, as in
        `zk_lock`; a writer that reads, too, has two holds
    :param max_waiters: the number of waiters, readers and writers, at which a further one does not
        wait, as in `zk_lock`
    :param cancel_on_loss: True cancels the body of ``async with`` at a loss, as in `zk_lock`
    :param busy: raised in place of `LockBusy`, as in `zk_lock`
    :param on_unavailable: "proceed" goes on without the lock, as in `zk_lock`
    :param values: the values of the template's placeholders, as in `zk_lock`
    :raises LockKeyError: `key` is empty or no valid text, or a placeholder has no value
    :raises ValueError: `max_hold` is not above 0, or `max_waiters` is negative
    """
    key, template = filled(key, values)
    options = Options(
        timeout=timeout,
        using=using,
        atomic=atomic,
        until=until,
        on_revoke=on_revoke,
        max_hold=max_hold,
        max_waiters=max_waiters,
        cancel_on_loss=cancel_on_loss,
        busy=busy,
        on_unavailable=on_unavailable,
        template=template,
    )
    return ReadWriteLock(prefixed(key, using), options)
