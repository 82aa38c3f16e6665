"""At most so many at a time: a port of Curator's ``InterProcessSemaphoreV2``.

A lease has no owner: it belongs to the process, and any thread or task of that may give it back. So
nothing here is reentrant, two objects on one key are one semaphore, and what this process has taken
is kept by key, on the `shelf`. Whose turn it is is decided in `gate`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distlock import signals
from distlock.conf import UNSET, configuration, positive_seconds, seconds
from distlock.engine.client import NoNode
from distlock.exceptions import LockBusy, LockLost, NotOwner
from distlock.inspection.tree import participants
from distlock.keys import templates, znodes
from distlock.owner.hold import TOO_LATE, Held, Hold, lost
from distlock.owner.owner import current
from distlock.queue.semaphore_limits import Limit, setting, whole
from distlock.queue.semaphore_queue import SemaphorePlace
from distlock.queue.waiting import Attempt, wait, wait_async
from distlock.session.session import session_for

from . import cancellation
from .held_permits import Shelf, claim, count, forget, keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from distlock.keys.znodes import NodeName, Participant
    from distlock.owner.owner import Owner
    from distlock.queue.contender import Node
    from distlock.session.session import Session

_T = TypeVar("_T")


class Leases:
    """What a semaphore and its mutex share: taking leases, and giving them back."""

    #: No semaphore is made from a template.
    template = ""

    def __init__(
        self,
        key: str,
        limit: Limit,
        *,
        timeout: Any,
        using: str,
        max_hold: Any,
        cancel_on_loss: bool,
    ) -> None:
        self.key = key = templates.plain_text(key)
        self.using = using
        self._name = templates.znode_name(key)
        self._timeout = timeout if timeout is UNSET else seconds(timeout)
        self._limit = limit
        self._max_hold = positive_seconds(max_hold, "max_hold")
        self._cancel_on_loss = cancel_on_loss

    def __enter__(self) -> Hold:
        if self._cancel_on_loss:
            cancellation.refuse_without_block(self)
        return self._take(self._shelf(current()), 1, True, UNSET, self._entered)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        returned: list[Held] = []
        try:
            self._give_back(self._shelf(current()), 1, returned)
        except (LockLost, NotOwner):
            if error is None:  # the body's own is worth more
                raise
        except BaseException:  # a soft time limit landed here
            if not returned:
                self._give_back(self._shelf(current()), 1, returned)
            raise

    async def __aenter__(self) -> Hold:
        then = self._entered_cancellable if self._cancel_on_loss else self._entered
        return await self._atake(self._shelf(current()), 1, True, UNSET, then)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loss = cancellation.end(self, error) if self._cancel_on_loss else None
        self.__exit__(kind, error, traceback)
        if loss is not None:
            raise loss from error

    # --- looking ---------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether all leases are taken. Asks the server.

        :raises LockUnavailable: ZooKeeper did not answer in time
        """
        session = session_for(self.using)
        read = session.ask(session.read, f"{self._path(session)}/leases")
        try:
            data, stat = session.answer(read, session.conf.connect_timeout, key=self.key)
        except NoNode:
            return False
        self._limit.read(data)
        return bool(stat.numChildren >= self._limit.now)

    def participants(self) -> list[Participant]:
        """Return who has leases, once for each, the oldest first. Asks the server.

        The first of the waiters is among them, with the leases that it waits for.

        :raises LockUnavailable: ZooKeeper did not answer in time
        """
        return self._standing("leases", znodes.leases)

    def waiters(self) -> list[Participant]:
        """Return who waits for leases, first come first. Asks the server.

        :raises LockUnavailable: ZooKeeper did not answer in time
        """
        return self._standing("locks", znodes.in_line)

    def _standing(
        self, where: str, order: Callable[[Iterable[str]], list[NodeName]]
    ) -> list[Participant]:
        session = session_for(self.using)
        path = f"{self._path(session)}/{where}"
        timeout = session.conf.connect_timeout
        return participants(session, path, key=self.key, timeout=timeout, order=order)

    # --- how it works ----------------------------------------------------------------------------

    def _path(self, session: Session) -> str:
        return f"{session.root}/{self._name}"

    def _shelf(self, owner: Owner | None = None) -> Shelf:
        return self.using, self._name, owner

    def _take(
        self,
        shelf: Shelf,
        wanted: int,
        blocking: bool,
        timeout: Any,
        then: Callable[[Hold | Attempt], _T],
    ) -> _T:
        """Return what `then` makes of the first lease, or of the attempt that was refused.

        A soft time limit or Ctrl-C may land between any two steps, also after the grant: what this
        call has taken is given back then.
        """
        taken: list[Held] = []
        try:
            return then(wait(*self._line(shelf, wanted, blocking, timeout, taken)))
        except BaseException:
            self._undo(shelf, taken)
            raise

    async def _atake(
        self,
        shelf: Shelf,
        wanted: int,
        blocking: bool,
        timeout: Any,
        then: Callable[[Hold | Attempt], _T],
    ) -> _T:
        taken: list[Held] = []
        try:
            return then(await wait_async(*self._line(shelf, wanted, blocking, timeout, taken)))
        except BaseException:
            self._undo(shelf, taken)
            raise

    def _line(
        self, shelf: Shelf, wanted: int, blocking: bool, timeout: Any, taken: list[Held]
    ) -> tuple[Callable[..., SemaphorePlace], float | None, Callable[[Attempt], Hold | Attempt]]:
        """Return what `wait` is to do: where to stand, for how long, and what comes then."""
        conf = configuration(self.using)
        for default in (self._timeout, conf.timeout):
            timeout = default if timeout is UNSET else timeout
        limit = seconds(timeout) if blocking else 0.0
        session = session_for(self.using)
        place_for = partial(
            SemaphorePlace,
            session,
            self._path(session),
            limit=self._limit,
            wanted=wanted,
            key=self.key,
            data=current().describe(conf),
            try_only=limit == 0,
        )
        return place_for, limit, partial(self._conclude, shelf, taken)

    def _conclude(self, shelf: Shelf, taken: list[Held], attempt: Attempt) -> Hold | Attempt:
        if signals.outcome(attempt, type(self), self) is None:
            return attempt
        for lease in cast("SemaphorePlace", attempt.place).leases:
            node = cast("Node", lease.node)
            held = Held(Hold(self.key, node, lease, using=self.using), lease)
            taken.append(held)
            keep(shelf, held)
            lease.listen(partial(signals.announce_change, type(self), held.hold))
            if self._max_hold is not None:
                lease.give_up_after(self._max_hold)
            self._announce(signals.lock_acquired, held.hold, waited=attempt.waited)
        return taken[0].hold

    def _give_back(self, shelf: Shelf, count: int, returned: list[Held]) -> None:
        """Give `count` leases of the shelf back, and note in `returned` which.

        From two threads at once each takes its own; an interrupted call gives back all the same.
        """
        try:
            there = claim(shelf, count, returned)
            for held in returned:
                self._end(held)
        except BaseException:
            for held in returned:
                forget(shelf, held)
                held.place.leave()
            raise
        if not there:
            raise NotOwner(
                f"{count} of {self.key!r} cannot be released: this process has not acquired as "
                "many, or has released them before. Release once what was acquired once; a `with` "
                "block does by itself, and a forked child has nothing of its parent's."
            )
        first = next((held.hold for held in returned if held.hold.lost), None)
        if first is not None:
            raise lost(first, TOO_LATE)

    def _undo(self, shelf: Shelf, taken: list[Held]) -> None:
        for held in taken:
            held.place.leave()
            if forget(shelf, held):
                self._end(held)

    def _end(self, held: Held) -> None:
        held.hold.lost  # noqa: B018 - settles it before the node goes
        held.place.leave()
        held.place.report()
        held_for = time.monotonic() - held.started
        self._announce(signals.lock_released, held.hold, held_for=held_for)

    def _announce(self, signal: Any, hold: Hold, **facts: Any) -> None:
        signals.announce(signal, type(self), hold, hold=hold, **facts)

    def _entered(self, outcome: Hold | Attempt) -> Hold:
        if isinstance(outcome, Hold):
            return outcome
        raise LockBusy(
            f"{self!r} is busy after {outcome.waited:.1f} s: all leases are taken. Try again "
            "later, or wait longer with timeout=.",
            key=self.key,
            waited=outcome.waited,
            retry_after=configuration(self.using).retry_after,
            using=self.using,
        )

    def _entered_cancellable(self, outcome: Hold | Attempt) -> Hold:
        hold = self._entered(outcome)
        cancellation.begin(self, [hold])
        return hold


class Semaphore(Leases):
    """A number of leases over all processes that share the ZooKeeper ensemble.

    Made by `zk_semaphore`. As a context manager it takes one lease, yields its `Hold`, and gives
    back that one. Safe to share between threads and tasks. It has no owner, and is not reentrant.
    Source: Curator's ``InterProcessSemaphoreV2``, the interface of :class:`threading.Semaphore`.
    """

    def __init__(
        self,
        key: str,
        limit: int,
        *,
        timeout: Any = UNSET,
        using: str = "default",
        max_hold: Any = None,
        cancel_on_loss: bool = False,
    ) -> None:
        super().__init__(
            key,
            Limit(key, limit),
            timeout=timeout,
            using=using,
            max_hold=max_hold,
            cancel_on_loss=cancel_on_loss,
        )

    def __repr__(self) -> str:
        return f"zk_semaphore({self.key!r}, {self.limit}, using={self.using!r})"

    def acquire(self, blocking: bool = True, timeout: Any = UNSET, *, leases: int = 1) -> bool:
        """Take a lease; return False where all are taken.

        :param blocking: False tries once
        :param timeout: seconds (number or timedelta) to wait, 0 to try once, None for ever; by
            default the semaphore's own, and then the setting ``TIMEOUT`` (5 s)
        :param leases: how many to take: all or none. Who waits for several does so at the head of
            the line, and whoever comes later waits behind.
        :raises ValueError: more leases than the limit, which may be lowered during the wait
        :raises LockUnavailable: ZooKeeper did not answer in time, or refused
        """
        if self._cancel_on_loss:
            cancellation.refuse_without_block(self)
        return self._take(self._shelf(), self._wanted(leases), blocking, timeout, is_hold)

    def release(self, leases: int = 1) -> None:
        """Give back leases that `acquire` has taken in this process, whichever thread took them.

        The deletes are sent and not waited for; they are repeated until they are done.

        :param leases: how many
        :raises NotOwner: this process does not have as many; it keeps what it has
        :raises LockLost: one of them was lost meanwhile; all are given back
        """
        self._give_back(self._shelf(), whole(leases, "leases"), [])

    async def aacquire(
        self, blocking: bool = True, timeout: Any = UNSET, *, leases: int = 1
    ) -> bool:
        """Take leases as `acquire` does; waiting costs no thread."""
        if self._cancel_on_loss:
            cancellation.refuse_without_block(self)
        return await self._atake(self._shelf(), self._wanted(leases), blocking, timeout, is_hold)

    async def arelease(self, leases: int = 1) -> None:
        """Give leases back as `release` does."""
        self.release(leases)

    @property
    def held(self) -> int:
        """How many leases this process has; never touches the network."""
        return count(self.using, self._name)

    @property
    def limit(self) -> int:
        """How many leases there are, as far as this process knows; assigning changes it for all.

        Assigning writes the new limit where all peers read it, and wakes who waits for a lease.
        Nobody loses a lease by a lower one. It counts before what the code of any process says, for
        as long as the semaphore is in use: a semaphore that has been idle for a minute or two is
        forgotten by the server, limit and all. Curator's clients do not read it.

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
            session.answer(session.ask(method, *args), timeout, key=self.key)

        while True:
            try:
                ask(session.write, path, data, -1)
                break
            except NoNode:
                ask(session.create_containers, path)
        self._limit.own = self._limit.told = limit

    def _wanted(self, leases: int) -> int:
        if whole(leases, "leases") > self.limit:
            raise self._limit.refusal(leases)
        return leases


def is_hold(outcome: Hold | Attempt) -> bool:
    return isinstance(outcome, Hold)


def zk_semaphore(
    key: str,
    limit: int,
    *,
    timeout: Any = UNSET,
    using: str = "default",
    max_hold: Any = None,
    cancel_on_loss: bool = False,
) -> Semaphore:
    """Return the semaphore named `key`, of which at most `limit` leases can be had at a time.

    ::

        with zk_semaphore("mail-provider", 5, timeout=2) as hold:
            ...

    :param key: what is shared, as text: ``"mail-provider"``
    :param limit: how many leases there are, the same for all who use the key
    :param timeout: seconds to wait (number or timedelta), 0 to try once, None for ever; by default
        the setting ``TIMEOUT`` (5 s)
    :param using: the alias in ``DISTLOCK``
    :param max_hold: seconds (number or timedelta) after which each lease is given up, as in
        `zk_lock`
    :param cancel_on_loss: True cancels the body of ``async with`` at a loss, as in `zk_lock`
    :raises LockKeyError: `key` is empty or no valid text
    :raises ValueError: `limit` is less than one, or `max_hold` is not above 0
    """
    return Semaphore(
        templates.literal_key(key),
        limit,
        timeout=timeout,
        using=using,
        max_hold=max_hold,
        cancel_on_loss=cancel_on_loss,
    )
