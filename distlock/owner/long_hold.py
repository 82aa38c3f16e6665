"""Looks after a hold that lasts: notes its begin in its node, and sends `lock_held_long`.

The heartbeat of the session calls `LongHold.look`, so a hold that ends before the first one pays
nothing. The signal comes on the timer's thread: a receiver may take its time, while the heartbeat
keeps the session alive.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from distlock.engine.errors import NoNode
from distlock.engine.reply import ignore
from distlock.engine.timer import call_later
from distlock.keys import znodes
from distlock.keys.templates import znode_name
from distlock.queue.policies import waiting_in
from distlock.signals import announce, lock_held_long

if TYPE_CHECKING:
    from distlock.session.session import Session

#: A hold that lasts for so many seconds says in its node for how long it has waited.
NOTED_SECONDS: Final = 1.0
#: A hold is long from so many times the usual time on, and from so many seconds on.
TIMES: Final = 10
LEAST_SECONDS: Final = 10.0
#: The usual time of a lock that this process has never released, in seconds.
UNKNOWN_SECONDS: Final = 6.0
#: The most locks whose usual times are kept: there may be as many keys as rows.
MANY: Final = 1000

#: The usual times of holds in this process, in seconds, by template, or by key without one.
_usual: dict[str, float] = {}


def learn(name: str, held_for: float) -> None:
    """Take note of a hold that has ended. One that got stuck counts as a long one."""
    usual = _usual.get(name)
    if usual is None:
        usual = UNKNOWN_SECONDS
        if len(_usual) >= MANY:
            _usual.clear()
    if held_for > LEAST_SECONDS:
        held_for = min(held_for, max(LEAST_SECONDS, TIMES * usual))
    _usual[name] = usual + (held_for - usual) / 8


def _limit(setting: float | str | None, name: str) -> float:
    """Return from how many seconds on a hold is long."""
    if isinstance(setting, str):
        return max(LEAST_SECONDS, TIMES * _usual.get(name, UNKNOWN_SECONDS))
    return math.inf if setting is None else setting


class LongHold:
    """A hold that has lasted for a heartbeat.

    :param held: its record, `owner.hold.Held`, which keeps this object
    """

    def __init__(self, held: Any) -> None:
        self._held = held
        self._noted = False
        #: How long it must have lasted to be told again, in seconds; infinite while it is told.
        self._again = 0.0
        #: The number of waiters at the last look; None if it is unknown.
        self._waiting: int | None = None

    def look(self) -> None:
        """Do what is due; on the heartbeat's thread."""
        held, hold = self._held, self._held.hold
        session: Session = held.grant.session
        held_for = time.monotonic() - held.started
        if held_for >= NOTED_SECONDS and not self._noted:
            self._noted = True
            self._note(session)
        limit = _limit(session.conf.held_long, hold.template or hold.key)
        if not held.grant.lasts and held_for >= max(limit, self._again):
            self._again = math.inf
            limited = held.grant.kind == znodes.LEASE
            path = held.grant.path
            session.children(f"{path.rpartition('/')[0]}/locks" if limited else path, self._counted)
            tasks = znodes.tasks_line(znode_name(hold.key), limited=limited)
            session.children(f"{session.root}/{znodes.TICKETS}/{tasks}", self._counted_tasks)

    def _note(self, session: Session) -> None:
        """Add to the node's data how long it waited for its grant.

        The next waiter is woken once by that, and looks again. A request to leave that has come
        before stays as it is.
        """
        grant = self._held.grant
        node = getattr(grant, "batch_node", grant)  # which has an owner of its own
        data = znodes.with_wait(node.data, self._held.started - grant.asked_at)
        session.when_connected(partial(session.write, self._held.hold.path, data, 0, ignore))

    def _counted(self, names: Any, error: BaseException | None) -> None:
        if isinstance(error, NoNode):  # the server removes the empty queue of a semaphore
            names, error = (), None
        count = len if self._held.grant.kind == znodes.LEASE else waiting_in
        self._waiting = None if error else count(znodes.in_line(names))

    def _counted_tasks(self, names: Any, error: BaseException | None) -> None:
        if error is None and self._waiting is not None:
            self._waiting += len(names)
        elif error is not None and not isinstance(error, NoNode):
            self._waiting = None
        call_later(0, self._tell)

    def _tell(self) -> None:
        held, hold = self._held, self._held.hold
        held_for = time.monotonic() - held.started
        self._again = 2 * held_for
        if not (hold.released or hold.lost):
            announce(
                lock_held_long,
                held.sender,
                hold,
                hold=hold,
                held_for=held_for,
                waiting=self._waiting,
                who=znodes.owner_in(held.grant.data),
            )
