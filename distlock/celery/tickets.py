"""Keeps a delayed task's place in the queue with a ticket, which outlives the process.

A task that finds its lock busy under ``on_busy="queue"`` draws a ticket and gives its slot back. It
tries the lock only when no ticket is ahead of its own; under a limit, when fewer are ahead than it
has room for. The lock itself excludes without them.

A ticket is ``<root>/@tickets/<znode name of the key>/<znode name of the task's id>-NNNNNNNNNN``, or
``<znode name of the key>@permits`` under a limit, a persistent sequential node under container
nodes; its data is JSON: ``v`` and ``ttl`` (seconds). The
task's id identifies it, so neither a lost reply nor a copy of the task gets a second place.

A lost task must not block the queue, so a ticket ends `ttl` after its last write, which each run of
its task repeats. Both times are the server's: "now" is the time of the write to one's own ticket.
The next task behind an ended ticket removes it, if it still has the judged version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from distlock.engine.errors import BadVersion, NoNode
from distlock.keys.templates import znode_name
from distlock.keys.znodes import in_line, leases, read_json
from distlock.queue.semaphore import limit_in
from distlock.session.programs import Program, below, in_background
from distlock.session.registry import session_for
from distlock.session.session import Session

#: The most seconds that a ticket lasts without a renewal, whatever its data.
LONGEST: Final = 600.0


class Turn(NamedTuple):
    """The turn for which a delayed task waits, as its message tells the worker (`wakes`)."""

    using: str
    #: The path of its ticket.
    ticket: str
    #: The path of the holders' nodes.
    holders: str
    #: How many permits there are, and how many the task takes.
    limit: int = 1
    permits: int = 1

    @property
    def at_a_time(self) -> int:
        """How many such tasks may run at a time."""
        return max(self.limit // self.permits, 1)


class Ticket:
    """One task's ticket for one key. Its calls raise `LockUnavailable`. Do not share it.

    :param limited: whether it is for permits, which have a line beside that of the key's lock
    """

    def __init__(self, session: Session, key: str, task_id: str, *, limited: bool) -> None:
        self._session = session
        line = znode_name(key) + ("@permits" if limited else "")  # no znode name has an "@"
        self._parent = f"{session.root}/@tickets/{line}"
        self._task = znode_name(task_id)
        self._run = partial(session.run, key=key)
        #: Whether a ticket may have been drawn that is not in `_line` yet.
        self._draws = False
        #: The tickets of all tasks at the last look, first come first.
        self._line: list[str] = []

    @property
    def drawn(self) -> bool:
        """Whether the task had a ticket at the last look."""
        return bool(self._own)

    @property
    def ahead(self) -> int:
        """The number of tickets ahead at the last look; all of them before one is drawn."""
        return self._line.index(self._own[0]) if self._own else len(self._line)

    @property
    def path(self) -> str:
        """The path of the ticket that was drawn."""
        return self._own[0]

    def look(self) -> None:
        """Look at the queue, with all that was acknowledged before: one write."""
        self._line = self._run(line_at(self._session, self._parent))

    def stand(self, ttl: float) -> None:
        """After `look`, renew the ticket or draw one, and remove those ahead whose time is over."""
        self._run(self._stand(json.dumps({"v": 1, "ttl": ttl}).encode()))

    def leave(self) -> None:
        """Remove the ticket, without waiting for that. Repeating it is fine."""
        session = self._session
        for path in self._own:
            session.delete(path, 0)
        if self._draws:
            in_background(session, self._give_all_back())
        self._line = []

    def _stand(self, data: bytes) -> Program[None]:
        stat = None
        if own := self._own:
            with suppress(NoNode):  # somebody has removed it
                stat = yield partial(self._session.write, own[0], data, -1)
        now = (stat or (yield from self._draw(data))).mtime
        self._line = yield from line_at(self._session, self._parent)
        self._draws = False
        while self.ahead and (yield from _has_ended(self._session, self._line[0], now)):
            del self._line[0]

    def _draw(self, data: bytes) -> Program[Any]:
        create = partial(self._session.create_persistent, sequential=True)
        self._draws = True
        request = partial(create, f"{self._parent}/{self._task}-", data)
        return (yield from below(self._session, self._parent, request))[1]

    def _give_all_back(self) -> Program[None]:
        for path in self._of_task((yield from line_at(self._session, self._parent))):
            self._session.delete(path, 0)

    @property
    def _own(self) -> list[str]:
        return self._of_task(self._line)

    def _of_task(self, line: list[str]) -> list[str]:
        return [path for path in line if _task_of(path) == self._task]


def sweep_tickets(using: str = "default") -> int:
    """Remove the tickets whose time is over, by the server's clock, and return their number.

    :param using: the alias in ``DISTLOCK``
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    session = session_for(using)
    parent = f"{session.root}/@tickets"
    try:
        now = session.call(session.write, parent, b"", -1, key="@tickets").mtime
        keys = session.call(session.children, parent, key="@tickets")
    except NoNode:
        return 0
    return sum(
        session.run(_has_ended(session, path, now), key="@tickets")
        for key in keys
        for path in session.run(line_at(session, f"{parent}/{key}"), key="@tickets")
    )


def line_at(session: Session, parent: str) -> Program[list[str]]:
    """Return the paths of a key's tickets, first come first."""
    try:
        names = yield partial(session.children, parent, sync=True)
    except NoNode:
        return []
    return [f"{parent}/{name}" for name in sorted(names, key=lambda name: name[-10:])]


def room_for(
    session: Session, turn: Turn, changed: Callable[[bool], None] | None = None
) -> Program[int]:
    """Return how many such tasks may begin beside the holders.

    :param changed: called at the next change of the holders, and of a limit that is set at run time
    """
    names, data = partial(session.children, turn.holders), partial(session.read, turn.holders)
    if changed is not None:
        data = partial(session.watch, turn.holders, changed)
        names = partial(data, children=True)
    try:
        there = yield names
        written, is_set = limit_in((yield data)[0])
    except NoNode:
        return turn.at_a_time
    limit = written if written and is_set else turn.limit
    holders = in_line(there) or leases(there)
    return (limit - len(holders)) // turn.permits


def _task_of(path: str) -> str:
    return path.rpartition("/")[2].rpartition("-")[0]


def _has_ended(session: Session, path: str, now: int) -> Program[bool]:
    """Remove a ticket if its time is over, and return whether it is gone."""
    try:
        data, stat = yield partial(session.read, path)
        ttl = read_json(data).get("ttl")
        if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= LONGEST:
            ttl = LONGEST
        if now <= stat.mtime + ttl * 1000:
            return False
        yield partial(session.remove, path, stat.version)
    except NoNode:
        return True
    except BadVersion:  # renewed just now
        return False
    return True
