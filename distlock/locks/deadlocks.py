"""Detects deadlocks: a waiter that holds another lock and waits too long looks for a cycle.

It starts at its own lock, looks up the holders, finds the locks for which these wait, and so on. An
owner that waits while it holds puts up a *notice* after half of its time:
``<root>/@waits/<owner id>``, an ephemeral node that names the node with which it waits. A look
costs three requests for each owner on its way. It takes no thread: the waiter takes a step whenever
it wakes, and a grant in the meantime wins.

- *It reports no false deadlock.* It reads the nodes one after the other, so a cycle counts only if
  a second look shows it again, by servers that have caught up with their leader: a waiter has
  released nothing between the two looks. Semaphores do not count, since any thread may release.
- *All waiters make the same choice* from wherever they look: the newest waiter gives way.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from distlock.engine.calls import Steps, Wake
from distlock.engine.errors import NoAuth, NodeExists, NoNode
from distlock.engine.reply import Done
from distlock.exceptions import DeadlockDetected, LockUnavailable
from distlock.inspection.state import Contender, Lock, key_of
from distlock.inspection.tree import MODES, listed_lock, participant
from distlock.inspection.wait_graph import Cycle, cycles
from distlock.keys.znodes import parse, read_json
from distlock.owner.owner import Owner
from distlock.queue.events import Node
from distlock.session.programs import Driver, Program, below, each, in_background
from distlock.session.session import Session

if TYPE_CHECKING:
    from distlock.contenders.waiting import InLine

#: Where the notices are, under the root.
WAITS: Final = "@waits"
#: The seconds after which a look is given up.
BUDGET_SECONDS: Final = 3.0

_OWNER = re.compile(r"[0-9a-f]{32}")


class _Wait(NamedTuple):
    """The node with which an owner waits."""

    owner: str
    session: Session
    #: The name of the lock under the root, and the name of the node in its queue.
    lock: str
    node: str


class DeadlockDetector:
    """Looks for a deadlock around one waiter, and ends its wait if it must give way.

    :param owner: the owner that waits, and holds something
    :param after: seconds from the begin of the wait to the first look, and from look to look
    """

    def __init__(self, owner: Owner, after: float) -> None:
        self._owner = owner
        self._after = after
        self._next = time.monotonic() + after / 2
        self._notice: _Notice | None = None
        self._look: Steps[None] | None = None

    def turn(self, contender: InLine, wake: Wake) -> float:
        """Take the steps that are due, without blocking, and return the seconds until the next.

        :param wake: wakes the caller, who then takes the next turn
        """
        now = time.monotonic()
        if now >= self._next:
            first = self._notice is None
            # At half of the time, put up the notice: the others need it when they look. Waiters
            # that came together spread out.
            self._next = now + self._after * (0.5 if first else random.uniform(1, 1.1))  # noqa: S311
            node = contender.node
            if node is not None and contender.session.connected:
                self._notice = self._notice or _Notice(contender.session, self._owner.id)
                self._notice.put_up(f"{contender.path}/{node.name}")
                if not first and self._look is None:
                    driver = Driver(contender.session, contender.key, BUDGET_SECONDS)
                    self._look = driver.steps(self._program(contender, node, wake), wake)
        if self._look is not None:
            try:
                next(self._look)
            except (StopIteration, LockUnavailable):  # it is over, or was given up
                self._look = None
        return self._next - now

    def end(self) -> None:
        """Take down the notice at the end of the wait. Any number of calls are fine."""
        if self._notice is not None:
            self._notice.take_down()

    def _program(self, contender: InLine, node: Node, wake: Wake) -> Program[None]:
        found = yield from self._deadlock(contender, node)
        if found is None:
            return
        again = yield from self._deadlock(contender, node, sync=True)
        if again is None or again.nodes != found.nodes:
            return
        if contender.node is node and not (contender.granted or contender.error):
            contender.error = self._error(contender, again)  # a grant in this instant wins
            wake()

    def _deadlock(
        self, contender: InLine, node: Node, *, sync: bool = False
    ) -> Program[Cycle | None]:
        """Return the cycle in which this waiter is the newest, or None."""
        held_at = (held.grant.session for held in self._owner.held.values())
        sessions = list(dict.fromkeys([contender.session, *held_at]))
        lock = contender.path.removeprefix(f"{contender.session.root}/")
        pending = deque([_Wait(self._owner.id, contender.session, lock, node.name)])
        known = {self._owner.id}
        locks: list[Lock] = []
        while pending:
            found = yield from self._lock_of(pending.popleft(), sync)
            if found is None:
                continue
            locks.append(found)
            others = {holder.owner for holder in found.holders if _OWNER.fullmatch(holder.owner)}
            for session in sessions:
                pending.extend((yield from self._waits_of(sorted(others - known), session)))
            known |= others
        for cycle in cycles(locks):
            if cycle.certain and cycle.youngest.participant.path == f"{contender.path}/{node.name}":
                return cycle
        return None

    def _lock_of(self, wait: _Wait, sync: bool) -> Program[Lock | None]:
        """Return the lock of a wait, with all its holders and with this one waiter."""
        session, path = wait.session, f"{wait.session.root}/{wait.lock}"
        (names,) = yield from _all(partial(session.children, sync=sync), [path])
        key, kind = key_of(wait.lock)
        listed = listed_lock(Lock(key=key, name=wait.lock, path=path, kind=kind), names or ())
        waiter = next((node for node in listed.waiters if node.name == wait.node), None)
        if waiter is None:
            return None
        nodes = [*listed.holders, waiter]
        reads = yield from _all(session.read, [f"{path}/{node.name}" for node in nodes])
        found = [
            Contender(participant=who, mode=MODES[node.kind], holds=node is not waiter)
            for node, read in zip(nodes, reads, strict=True)
            if (who := participant(f"{path}/{node.name}", read)) is not None
        ]
        holders = tuple(one for one in found if one.holds)
        waiters = tuple(one for one in found if not one.holds)
        if not waiters:
            return None
        return replace(
            listed.lock, holding=len(holders), waiting=1, holders=holders, waiters=waiters
        )

    def _waits_of(self, owners: Sequence[str], session: Session) -> Program[list[_Wait]]:
        """Return where these owners wait, as far as notices on this session's tree tell.

        Anybody may have written one. The queue itself proves that a node waits, and whose it is.
        """
        reads = yield from _all(session.read, [_path_of(session, owner) for owner in owners])
        found = []
        for owner, read in zip(owners, reads, strict=True):
            said = read_json(read[0]).get("waits") if read else None
            lock, _, node = said.rpartition("/") if isinstance(said, str) else ("", "", "")
            if lock and "/" not in lock and parse(node) and f"{lock}{node}".isprintable():
                found.append(_Wait(owner, session, lock, node))
        return found

    def _error(self, contender: InLine, cycle: Cycle) -> DeadlockDetected:
        conf = contender.session.conf
        return DeadlockDetected(
            f"The wait for {contender.key!r} would never end: {cycle}. The newest waiter gives "
            "way, and that is this one. Release what you hold and try again. To avoid this, take "
            "all locks at once with zk_multilock(), or always in the same order.",
            key=contender.key,
            using=conf.alias,
            cycle=tuple(link.waiter.participant for link in cycle.links),
            retry_after=conf.retry_after,
        )


def detector_for(owner: Owner, limit: float | None, after: float | None) -> DeadlockDetector | None:
    """Return a detector for a wait of `limit` seconds, if that is long enough to look."""
    if after is None or (limit is not None and limit <= after):
        return None
    return DeadlockDetector(owner, after)


def _all(method: Callable[..., None], paths: Sequence[str]) -> Program[list[Any]]:
    """Ask about all paths; None stands for nodes that are gone or unreadable."""
    return each([partial(method, path) for path in paths], NoNode, NoAuth)


def _path_of(session: Session, owner: str) -> str:
    return f"{session.root}/{WAITS}/{owner}"


class _Notice:
    """Tells in the tree where an owner waits, while it waits."""

    def __init__(self, session: Session, owner: str) -> None:
        self._session = session
        self._path = _path_of(session, owner)
        self._sent_in = 0
        self._down = False

    def put_up(self, waits_at: str) -> None:
        """Publish the node with which the owner waits; again, since the session may be new."""
        said = waits_at.removeprefix(f"{self._session.root}/")
        self._sent_in = self._session.id
        data = json.dumps({"v": 1, "waits": said}, separators=(",", ":")).encode()
        in_background(self._session, self._program(data))

    def take_down(self) -> None:
        """Remove the notice for certain, even if none was made. Any number of calls are fine."""
        self._down = True
        self._session.delete(self._path, self._sent_in)

    def _program(self, data: bytes) -> Program[None]:
        parent = f"{self._session.root}/{WAITS}"
        try:
            yield from below(self._session, parent, partial(self._create, data))
        except NodeExists:  # only its owner's, of this wait or the one before
            yield partial(self._session.write, self._path, data, -1)

    def _create(self, data: bytes, done: Done) -> None:
        self._session.create_ephemeral(self._path, data, done, self._made_late)
        if self._down:  # after the create: `take_down` looks at them in the other order
            self.take_down()

    def _made_late(self, value: Any) -> None:
        if self._down:
            self.take_down()
