"""Elects a leader of the fleet: one of all candidates leads, and the next one takes over.

The leader holds the fair, reentrant mutex of the leader's name, so all promises of a mutex hold
here. Source: Curator's ``LeaderSelector`` (`Leader.run`) and ``LeaderLatch``
(`Leader.is_leader`, the ``with`` block), kazoo's ``Election``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from distlock.conf import prefixed
from distlock.conf import seconds as in_seconds
from distlock.contenders.contender import QueuedContender
from distlock.contenders.waiting import Attempt
from distlock.engine.calls import Latch
from distlock.exceptions import LockBusy, LockLost, LockUnavailable
from distlock.inspection.state import LEADER
from distlock.keys.templates import literal_key
from distlock.keys.znodes import Participant, incompatible_recipe
from distlock.logs.loggers import logger
from distlock.owner.hold import Hold
from distlock.owner.owner import Owner
from distlock.queue.policies import MUTEX
from distlock.signals import lock_lost

from .lock import Options
from .mutex import Mutex

if TYPE_CHECKING:
    from distlock.contenders.waiting import InLine
    from distlock.session.session import Session


class Leader(Mutex):
    """A candidate for the leadership of `name`, a `Mutex` with `stop`; `zk_leader` makes it.

    :ivar name: the name of the leadership
    """

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, options)
        self.name = name = self.key
        self.key = LEADER + name
        self._name = LEADER + self._name
        self._id = (self.using, self._name)
        self._hold: Hold | None = None
        self._stopped = False
        self._candidates: set[_Candidate] = set()
        self._renew_news()
        lock_lost.connect(self._lost)  # a weak reference

    def __repr__(self) -> str:
        return f"zk_leader({self.name!r}, using={self.using!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is another candidate, which does not lead.
        return Leader, (self.name, self.options)

    # --- leading ---------------------------------------------------------------------------------

    def run(self, work: Callable[[Hold], object]) -> None:
        """Call ``work(hold)`` each time this becomes the leader, until `stop`.

        When `work` returns, the leadership is released, and this candidate goes to the end of the
        queue. It also goes there after losing the leadership, and keeps trying while the lock
        server is away (Curator's ``autoRequeue`` did not at first: Netflix 53, CURATOR-73). An
        exception from `work` ends the run with nothing held, except the `LockLost` of its own hold.

        Another candidate replaces a leader that is cut off, while it still works. So `work` calls
        ``hold.check()`` before each step that must not happen twice, and pauses with `stay`, which
        ends in time.

        :raises TypeError: `work` is not callable
        :raises LockBusy: this candidate has a `timeout`, and its turn did not come in time
        """
        if not callable(work):
            raise TypeError(f"run() wants a function to call as the leader, not {work!r:.80}.")
        while not self._stopped:
            hold: Hold | None = None
            try:
                with self as hold:
                    if not self._stopped:
                        work(hold)
            except LockLost as lost:
                if hold is None or lost.hold is not hold:
                    raise
            except (LockBusy, LockUnavailable) as error:
                if hold is not None:  # of another lock, in `work`
                    raise
                if isinstance(error, LockUnavailable):
                    logger.warning("%r is waiting for the lock server. %s", self, error)
                    self._renew_news()
                    self._news.wait(error.retry_after)
                elif not self._stopped:
                    raise

    def stay(self, seconds: float | timedelta | None) -> bool:
        """Pause within `work`, and return whether to go on as the leader.

        It ends early, with False, at the loss of the leadership or after `stop`::

            def work(hold):
                while leader.stay(60):
                    send_reminders()

        :param seconds: the pause (number or timedelta); None to pause until one of the two
        """
        limit = in_seconds(seconds)
        ends_at = math.inf if limit is None else time.monotonic() + limit
        while (hold := self._leading) is not None and not self._stopped:
            remaining = ends_at - time.monotonic()
            if remaining <= 0:
                return True
            # No longer than the hold is valid: the news of a loss may come late.
            self._news.wait(min(remaining, hold.valid_for()))
        return False

    def stop(self) -> None:
        """End all waits and `run`, for good. Any thread or signal handler may call it.

        A candidate leaves the queue at once: a waiting ``with`` block or `acquire` raises
        `LockBusy`. A leader is not interrupted: `stay` returns False, and the leadership is
        released when the work is done.
        """
        self._stopped = True
        self._news.open()
        for candidate in tuple(self._candidates):
            candidate.call_off()

    # --- looking ---------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this object leads, in any thread or task; never uses the network."""
        return self._leading is not None

    def leader(self) -> Participant | None:
        """Return the first in the queue, which is the leader. Asks the server."""
        return self.holder()

    # --- how it works ----------------------------------------------------------------------------

    @property
    def _leading(self) -> Hold | None:
        hold = self._hold
        return None if hold is None or hold.released or hold.lost else hold

    def _path(self, session: Session) -> str:
        return f"{session.root}/{self._name}"  # whatever the tenant in the thread that leads

    def _contender_for(self, owner: Owner) -> Callable[..., QueuedContender]:
        return self._candidate

    def _candidate(self, *args: Any, **kwargs: Any) -> _Candidate:
        candidate = _Candidate(self._candidates, *args, **kwargs)
        if self._stopped:  # after adding it: `stop` does the two in the other order
            candidate.call_off()
        return candidate

    def _conclude(self, owner: Owner, attempt: Attempt[InLine]) -> Hold | None:
        hold = super()._conclude(owner, attempt)
        return None if hold is None else self._leads(hold)

    def _again(
        self, owner: Owner, timeout: Any, entered: Callable[[Hold], object] | None = None
    ) -> Hold | None:
        def leads(hold: Hold) -> None:
            self._leads(hold)
            if entered is not None:
                entered(hold)

        return super()._again(owner, timeout, leads)

    def _leads(self, hold: Hold) -> Hold:
        if hold is not self._hold:
            self._hold = hold
            self._renew_news()
        return hold

    def _renew_news(self) -> None:
        """Close the latch at which `stay` waits. `stop` and the loss of the hold open it."""
        self._news = Latch()
        if self._stopped:  # after closing it: `stop` does the two in the other order
            self._news.open()

    def _lost(self, *, hold: Hold, **_: Any) -> None:
        if hold is self._hold:
            self._news.open()


class _Candidate(QueuedContender):
    """A contender whose wait can be called off; `all_` has those that wait or hold.

    A leader stays long, so from the first heartbeat on it watches the queue for newcomers. A
    candidate of an incompatible recipe, such as Curator's ``LeaderLatch``, leads at once, beside
    it. The leadership then counts as lost.
    """

    lasts = True

    def __init__(self, all_: set[_Candidate], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, policy=MUTEX, **kwargs)
        self._all = all_
        self._watches_line = False
        all_.add(self)

    def leave(self) -> None:
        self._all.discard(self)
        super().leave()
        if self._watches_line:
            self.session.unwatch(self.path, self._line_changed, children=True)

    def deadline_renewed(self) -> None:
        super().deadline_renewed()
        if self.granted and not self._watches_line:
            self._watches_line = True
            self._watch_line()

    def _watch_line(self) -> None:
        self.session.watch(self.path, self._line_changed, self._names_read, children=True)
        if self.left:  # after the watch: `leave` looks at them in the other order
            self.session.unwatch(self.path, self._line_changed, children=True)

    def _line_changed(self, deleted: bool) -> None:
        if not self.left:
            self.session.when_connected(self._watch_line)

    def _names_read(self, names: Any, error: BaseException | None) -> None:
        peer = next(filter(incompatible_recipe, names or ()), None)
        if peer is not None and not self.left:
            logger.error(
                "%r is not led any more: %s/%s is a node of %s, which ignores any other recipe. "
                "Use LeaderSelector there, or another path.",
                self.key,
                self.path,
                peer,
                incompatible_recipe(peer),
            )
            self.lose()
            self.session.heartbeat.hurry()

    def call_off(self) -> None:
        """End the wait, unless it was granted."""
        self.error = LockBusy(
            f"{self.key!r} was not waited for any longer: stop() was called.", key=self.key
        )
        self._settled()


def zk_leader(
    name: str,
    *,
    timeout: float | timedelta | None = None,
    using: str = "default",
    max_hold: float | timedelta | None = None,
    cancel_on_loss: bool = False,
) -> Leader:
    """Return a candidate for the leadership of `name`, of which there is one in the whole fleet.

    ::

        with zk_leader("beat") as hold:
            ...

        leader = zk_leader("beat")
        signal.signal(signal.SIGTERM, lambda *_: leader.stop())
        leader.run(work)

    Leader names never collide with lock keys: in the tree this one is ``%leader:beat`` under the
    ``NAMESPACE``. A Curator ``LeaderSelector`` on that path takes part. A ``LeaderLatch``
    cannot: it raises `IncompatiblePeer` here, and a leader that meets one later has lost.

    :param name: the name of the leadership, as text: ``"beat"``
    :param timeout: seconds to wait (number or timedelta), 0 to try once, None for ever (default)
    :param using: the alias in ``DISTLOCK``
    :param max_hold: seconds (number or timedelta) after which a leadership is given up, as in
        `zk_lock`: another candidate leads then, and `Leader.run` goes to the end of the line
    :param cancel_on_loss: True cancels the body of ``async with`` at a loss, as in `zk_lock`
    :raises LockKeyError: `name` is empty or no valid text
    :raises ValueError: `max_hold` is not above 0
    """
    options = Options(
        timeout=timeout, using=using, max_hold=max_hold, cancel_on_loss=cancel_on_loss
    )
    return Leader(prefixed(literal_key(name), using), options)
