"""A mutex that any thread may release: a port of Curator's ``InterProcessSemaphoreMutex``.

It is a semaphore with one permit, on the same wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock.conf import UNSET, configuration
from distlock.keys.templates import literal_key
from distlock.owner.owner import current
from distlock.queue.semaphore.limits import Limit
from distlock.transactions import refuse_open_transaction

from .cancellation import refuse_without_block
from .held_permits import count
from .lock import Options
from .permits import Permits

if TYPE_CHECKING:
    from distlock.keys.znodes import Participant

    from .permits import Awaited


class SemaphoreMutex(Permits):
    """A lock that any thread or task of the process may release; not reentrant.

    `zk_semaphore_mutex` makes it. As a context manager it yields a `Hold`.
    Source: Curator's ``InterProcessSemaphoreMutex``, the interface of :class:`threading.Lock`.
    """

    def __init__(self, key: str, options: Options) -> None:
        super().__init__(key, Limit(key, 1, fixed=True), options)

    def __repr__(self) -> str:
        return f"zk_semaphore_mutex({self.key!r}, using={self.using!r})"

    def acquire(self, blocking: bool = True, timeout: Any = UNSET) -> bool:
        """Take the lock; return False if it is busy, even if this very thread holds it.

        :param blocking: False tries once
        :param timeout: seconds (number or timedelta) to wait, 0 to try once, None for ever; by
            default the lock's own, and then the setting ``TIMEOUT`` (5 s)
        :raises LockUnavailable: the lock server did not answer in time, or refused
        :raises LockInTransaction: within an open transaction
        """
        if self.options.cancel_on_loss:
            refuse_without_block(self)
        return self._call(current(), blocking, timeout).run() is not None

    def release(self) -> None:
        """Release the lock, whichever thread of this process acquired it.

        The delete is sent, and repeated until it is done. This does not wait for it.

        :raises NotOwner: this process does not hold the lock
        :raises LockLost: it did, but the lock was lost meanwhile
        """
        self._give_back(self._permits(), 1, [])

    @property
    def held(self) -> bool:
        """Whether this process holds the lock; never uses the network."""
        return count(self.using, self._name) > 0

    def holder(self) -> Participant | None:
        """Return the holder. Asks the server."""
        return next(iter(self.participants()), None)

    def _attempt(self, *args: Any) -> Awaited:
        if configuration(self.using).in_transaction == "raise":
            refuse_open_transaction(self.key)
        return super()._attempt(*args)


def zk_semaphore_mutex(
    key: str,
    *,
    timeout: Any = UNSET,
    using: str = "default",
    max_hold: Any = None,
    cancel_on_loss: bool = False,
) -> SemaphoreMutex:
    """Return a lock named `key` that is not reentrant, and that any thread may release.

    It excludes a semaphore of the same key, but not a `zk_lock` of that key.

    ::

        lock = zk_semaphore_mutex("import")
        if lock.acquire(timeout=0):
            Thread(target=work_and_then, args=[lock.release]).start()

    :param key: the name of the lock: ``"import"``
    :param timeout: seconds to wait (number or timedelta), 0 to try once, None for ever; by default
        the setting ``TIMEOUT`` (5 s)
    :param using: the alias in ``DISTLOCK``
    :param max_hold: seconds (number or timedelta) after which a hold is given up, as in `zk_lock`
    :param cancel_on_loss: True cancels the body of ``async with`` at a loss, as in `zk_lock`
    :raises LockKeyError: `key` is empty or no valid text
    :raises ValueError: `max_hold` is not above 0
    """
    options = Options(
        timeout=timeout, using=using, max_hold=max_hold, cancel_on_loss=cancel_on_loss
    )
    return SemaphoreMutex(literal_key(key), options)
