"""Keeps a delayed task's place in the queue with a ticket, which outlives the process.

Under ``on_busy="queue"``, the worker's main process draws a task's ticket (`wakes`), or else the
task does when it finds its lock busy, and gives its slot back. It tries the lock only when no
ticket is ahead of its own; under a limit, when fewer are ahead than it has room for. The lock
itself excludes without them.

A ticket is ``<root>/@tickets/<znode name of the key>/<znode name of the task's id>-NNNNNNNNNN``, or
``<znode name of the key>@permits`` under a limit, a persistent sequential node under container
nodes; its data is JSON: ``v`` and ``ttl`` (seconds). The
task's id identifies it, so neither a lost reply nor a copy of the task gets a second place.

A lost task must not block the queue, so a ticket ends `ttl` after its last write. Each run of its
task repeats that, and a worker in which its message waits does (`wakes`). Both times are the
server's: "now" is the time of the write to one's own ticket. The next task behind an ended ticket
removes it, if it still has the judged version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from distlock.engine.errors import UNKNOWN, BadVersion, NoNode
from distlock.keys.templates import znode_name
from distlock.keys.znodes import TICKETS, in_line, leases, read_json, tasks_line
from distlock.locks.mutex import Mutex
from distlock.locks.semaphore import Semaphore
from distlock.queue.semaphore import limit_in
from distlock.session.programs import Program, Request, each, in_background
from distlock.session.registry import session_for
from distlock.session.session import Session

#: The seconds that a ticket lasts without a renewal: the longest try in a slot, the longest pause
#: without wakes, and 30 s for a message that is late.
TTL: Final = 90.0
#: The most seconds that one lasts, whatever its data.
LONGEST: Final = 600.0
#: The data of a ticket.
DATA: Final = json.dumps({"v": 1, "ttl": TTL}).encode()


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
        line = tasks_line(znode_name(key), limited=limited)
        #: The path of the tickets' parent.
        self.parent = f"{session.root}/{TICKETS}/{line}"
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

    def drawn_as(self, path: str) -> None:
        """Note the ticket that the worker's main process has drawn."""
        self._line = [path]

    def stand(self) -> None:
        """After a look, renew the ticket or draw one, and remove those ahead whose time is over."""
        self._run(self._stand())

    def draw(self, *, redelivered: bool) -> Program[None]:
        """Draw the ticket without a list of the line, or find the one that was drawn before."""
        session, requests = self._session, [self._create()]
        while not self._own:
            try:
                if redelivered:
                    self._line = yield from line_at(session, self.parent)
                if not self._own:
                    *_, drawn = yield from each(requests, NoNode)
                    requests = [partial(session.create_containers, self.parent), self._create()]
                    if drawn:
                        self._line = [drawn[0]]
            except UNKNOWN:  # the reply was lost
                redelivered = True

    def leave(self) -> None:
        """Remove the ticket, without waiting for that. Repeating it is fine."""
        for path in self._own:
            self._session.delete(path, 0)
        if self._draws:
            self.give_back()
        self._line = []

    def give_back(self) -> None:
        """Remove what the task has drawn, unseen, without waiting for that."""
        in_background(self._session, self._give_back())

    def turn(self, lock: Mutex | Semaphore) -> Turn:
        """Return what the task waits for; `lock` is that of the key."""
        path = f"{self._session.root}/{znode_name(lock.key)}"
        if isinstance(lock, Mutex):
            return Turn(lock.using, self.path, path)
        return Turn(lock.using, self.path, f"{path}/leases", lock.limit, lock.wanted)

    def room(self, limit: Semaphore) -> int:
        """Return how many such tasks may begin beside the holders; see `room_for`."""
        return self._run(room_for(self._session, self.turn(limit)))

    def _stand(self) -> Program[None]:
        session, stat = self._session, None
        while stat is None:
            own = self._own
            self._draws = not own
            request = partial(session.write, own[0], DATA, -1) if own else self._create()
            # A list that follows a write has all that was acknowledged before.
            both = [request, partial(session.children, self.parent)]
            stat, names = yield from each(both, NoNode)
            self.see(names)
            if names is None:
                yield partial(session.create_containers, self.parent)
        self._draws = False
        now = (stat if own else stat[1]).mtime
        while self.ahead and (yield from has_ended(session, self._line[0], now)):
            del self._line[0]

    def see(self, names: Iterable[str] | None) -> None:
        """Note the names of all tickets, None if there is no queue."""
        self._line = _in_order(self.parent, names or ())

    def look(self) -> Request:
        """Return the request for the names, with all that was acknowledged before: one write."""
        return partial(self._session.children, self.parent, sync=True)

    def _create(self) -> Request:
        create = partial(self._session.create_persistent, sequential=True)
        return partial(create, f"{self.parent}/{self._task}-", DATA)

    def _give_back(self) -> Program[None]:
        for path in self._of_task((yield from line_at(self._session, self.parent))):
            self._session.delete(path, 0)

    @property
    def _own(self) -> list[str]:
        return self._of_task(self._line)

    def _of_task(self, line: list[str]) -> list[str]:
        return [path for path in line if _task_of(path) == self._task]


def look(session: Session, tickets: Sequence[Ticket], key: str) -> None:
    """Look at the queues of one task's tickets."""
    lists = session.run(each([ticket.look() for ticket in tickets], NoNode), key=key)
    for ticket, names in zip(tickets, lists, strict=True):
        ticket.see(names)


def leave(tickets: Iterable[Ticket]) -> None:
    """Remove one task's tickets, without waiting for that. Repeating it is fine."""
    for ticket in tickets:
        ticket.leave()


def sweep_tickets(using: str = "default") -> int:
    """Remove the tickets whose time is over, by the server's clock, and return their number.

    :param using: the alias in ``DISTLOCK``
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    session = session_for(using)
    parent = f"{session.root}/{TICKETS}"
    try:
        now = session.call(session.write, parent, b"", -1, key=TICKETS).mtime
        keys = session.call(session.children, parent, key=TICKETS)
    except NoNode:
        return 0
    return sum(
        session.run(has_ended(session, path, now), key=TICKETS)
        for key in keys
        for path in session.run(line_at(session, f"{parent}/{key}"), key=TICKETS)
    )


def line_at(session: Session, parent: str) -> Program[list[str]]:
    """Return the paths of a key's tickets, first come first."""
    try:
        names = yield partial(session.children, parent, sync=True)
    except NoNode:
        return []
    return _in_order(parent, names)


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


def _in_order(parent: str, names: Iterable[str]) -> list[str]:
    return [f"{parent}/{name}" for name in sorted(names, key=lambda name: name[-10:])]


def _task_of(path: str) -> str:
    return path.rpartition("/")[2].rpartition("-")[0]


def is_over(data: bytes, stat: Any, now: int) -> bool:
    """Return whether a ticket's time is over."""
    ttl = read_json(data).get("ttl")
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl <= LONGEST:
        ttl = LONGEST
    return bool(now > stat.mtime + ttl * 1000)


def has_ended(session: Session, path: str, now: int) -> Program[bool]:
    """Remove a ticket if its time is over, and return whether it is gone."""
    try:
        data, stat = yield partial(session.read, path)
        if not is_over(data, stat, now):
            return False
        yield partial(session.remove, path, stat.version)
    except NoNode:
        return True
    except BadVersion:  # renewed just now
        return False
    return True
