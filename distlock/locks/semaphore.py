"""Limits how many may hold at a time: a port of Curator's ``InterProcessSemaphoreV2``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distlock.conf import UNSET
from distlock.engine.errors import NoNode
from distlock.keys import templates
from distlock.owner.owner import current
from distlock.queue.semaphore.limits import Limit, setting, whole
from distlock.session.registry import session_for

from . import cancellation
from .held_permits import count
from .lock import Options
from .permits import Permits

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.calls import Call
    from distlock.owner.hold import Hold


class Semaphore(Permits):
    """A number of permits over all processes that share the ZooKeeper ensemble.

    `zk_semaphore` makes it. As a context manager it takes one permit, yields its `Hold`, and
    releases that one. Threads and tasks may share it. It has no owner, and is not reentrant.
    Source: Curator's ``InterProcessSemaphoreV2``, the interface of :class:`threading.Semaphore`.
    """

    def __init__(self, key: str, limit: int, options: Options) -> None:
        super().__init__(key, Limit(key, limit), options)

    def __repr__(self) -> str:
        return f"zk_semaphore({self.key!r}, {self.limit}, using={self.using!r})"

    def acquire(self, blocking: bool = True, timeout: Any = UNSET, *, leases: int = 1) -> bool:
        """Take a permit; return False if all are in use.

        :param blocking: False tries once
        :param timeout: seconds (number or timedelta) to wait, 0 to try once, None for ever; by
            default the semaphore's own, and then the setting ``TIMEOUT`` (5 s)
        :param leases: the number of permits to take, all or none. A caller that wants several waits
            for them at the head of the queue, and later callers wait behind it.
        :raises ValueError: more permits than the limit, which may be lowered during the wait
        :raises LockUnavailable: the lock server did not answer in time, or refused
        """
        return self._taking(blocking, timeout, leases).run() is not None

    def release(self, leases: int = 1) -> None:
        """Release permits that any thread of this process has acquired.

        The deletes are sent, and repeated until they are done. This does not wait for them.

        :param leases: the number of permits
        :raises NotOwner: this process has fewer, and keeps them
        :raises LockLost: one of them was lost meanwhile; all are released
        """
        self._give_back(self._permits(), whole(leases, "leases"), [])

    async def aacquire(
        self, blocking: bool = True, timeout: Any = UNSET, *, leases: int = 1
    ) -> bool:
        """Take permits as `acquire` does, without a thread for the wait."""
        return await self._taking(blocking, timeout, leases).arun() is not None

    async def arelease(self, leases: int = 1) -> None:
        """Release permits as `release` does."""
        self.release(leases)

    @property
    def held(self) -> int:
        """The number of permits of this process; never uses the network."""
        return count(self.using, self._name)

    @property
    def limit(self) -> int:
        """The number of permits, as far as this process knows; assigning changes it for all.

        Assigning writes the new limit where all peers read it, and wakes waiters. Nobody loses a
        permit when the limit falls. The assigned limit overrides the limit in any process's code
        while the semaphore is in use: the server forgets a semaphore, limit and all, that has been
        idle for a minute or two. Curator's clients do not read it.

        :raises LockUnavailable: the limit could not be written, and is as before
        """
        return self._limit.now

    @limit.setter
    def limit(self, limit: int) -> None:
        data = setting(whole(limit, "limit"))
        session = session_for(self.using)
        deadline = time.monotonic() + session.conf.connect_timeout
        path = f"{self._path(session)}/leases"

        def ask(method: Callable[..., None], *args: Any) -> None:
            timeout = max(deadline - time.monotonic(), 0)
            session.call(method, *args, timeout=timeout, key=self.key)

        while True:
            try:
                ask(session.write, path, data, -1)
                break
            except NoNode:
                ask(session.create_containers, path)
        self._limit.own = self._limit.told = limit

    def _taking(self, blocking: bool, timeout: Any, leases: int) -> Call[Hold | None]:
        if self.options.cancel_on_loss:
            cancellation.refuse_without_block(self)
        if whole(leases, "leases") > self.limit:
            raise self._limit.refusal(leases)
        return self._call(current(), blocking, timeout, wanted=leases)


def zk_semaphore(
    key: str,
    limit: int,
    *,
    timeout: Any = UNSET,
    using: str = "default",
    max_hold: Any = None,
    cancel_on_loss: bool = False,
) -> Semaphore:
    """Return the semaphore named `key`, with `limit` permits.

    ::

        with zk_semaphore("mail-provider", 5, timeout=2) as hold:
            ...

    :param key: the name of the semaphore: ``"mail-provider"``
    :param limit: the number of permits, the same for all users of the key
    :param timeout: seconds to wait (number or timedelta), 0 to try once, None for ever; by default
        the setting ``TIMEOUT`` (5 s)
    :param using: the alias in ``DISTLOCK``
    :param max_hold: seconds (number or timedelta) after which each permit is given up, as in
        `zk_lock`
    :param cancel_on_loss: True cancels the body of ``async with`` at a loss, as in `zk_lock`
    :raises LockKeyError: `key` is empty or no valid text
    :raises ValueError: `limit` is less than one, or `max_hold` is not above 0
    """
    options = Options(
        timeout=timeout, using=using, max_hold=max_hold, cancel_on_loss=cancel_on_loss
    )
    return Semaphore(templates.literal_key(key), limit, options)
