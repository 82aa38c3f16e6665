"""Says what must not be: two holders, a token that falls, a call that does not end, a leftover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock.contenders.batch import BatchMember
from distlock.contenders.semaphore import SemaphoreContender

from .world import Violation

if TYPE_CHECKING:
    from collections.abc import Container

    from .callers import Line
    from .process import Process
    from .world import World

#: How much longer than its timeout a call may last, in seconds of its running process (promise 7).
OVERRUN = 0.5
#: By how much earlier a waiter has come for certain, in seconds.
EARLIER = 0.5
#: The greatest number in a young line.
YOUNG = 2


class Wait:
    """One contender of one caller."""

    def __init__(self, process: Process, line: Line, kind: str, contender: Any) -> None:
        self.process = process
        self.line = line
        self.kind = kind
        self.contender = contender
        self.began = process.world.time
        self.connected = process.session.connected
        self.told = False

    def __str__(self) -> str:
        node = self.contender.node
        name = "" if node is None else node.name[-10:]
        return f"{self.process}'s {self.kind} on {self.line.name} {name}".strip()

    @property
    def weight(self) -> float:
        """How much of the line it takes: all of it as a rule."""
        if self.kind == "reader":
            return 1 / 1000
        return self.contender.wanted / self.line.limit if self.line.limit else 1.0

    @property
    def believes(self) -> bool:
        """Whether its process runs, and would find by its own check that it holds the lock.

        It is `Grant.lost` without noting the loss.
        """
        contender = self.contender
        if not contender.granted or contender.left or not self.process.runs:
            return False
        world, here = self.process.world, self.process.world.here
        world.here = self.process
        try:
            return all(map(self._certain, _grants(contender)))
        finally:
            world.here = here

    def _certain(self, grant: Any) -> bool:
        if grant._lost or grant.left:
            return not grant._lost
        session, node = grant.session, grant.node
        alive: bool = session.deadline.unbroken(grant.epoch)
        return alive and node is not None and node.session_id == session.id


def _grants(contender: Any) -> list[Any]:
    if isinstance(contender, SemaphoreContender):
        return contender.permits
    if isinstance(contender, BatchMember):
        return [contender, contender.batch_node] if contender._lost else [contender.batch_node]
    return [contender]


class Judge:
    """Looks at all waits and holds."""

    def __init__(self, world: World) -> None:
        self.world = world
        #: Whether nothing was broken so far.
        self.faultless = True
        self.grants = 0
        self._waits: dict[Wait, None] = {}
        #: By the line: the greatest token of one who had it alone, and of anybody.
        self._tokens: dict[str, tuple[Any, Any]] = {}
        #: The paths of nodes that an operator has removed.
        self.broken: set[str] = set()

    def add(self, wait: Wait) -> None:
        self._waits[wait] = None

    def remove(self, wait: Wait) -> None:
        """Take note that a caller has left; nobody may give it the lock any more."""
        self._waits.pop(wait, None)
        if not wait.contender.left:
            raise Violation(f"{wait} was not left")

    def forget(self, process: Process) -> None:
        """Take note that a process has died."""
        for wait in [one for one in self._waits if one.process is process]:
            del self._waits[wait]

    def settled(self, wait: Wait) -> None:
        """Look at one who was told something."""
        if wait.contender.granted and not wait.told:
            wait.told = True
            self.grants += 1
            self.world.say(wait, "is granted")
            if wait.contender.left:
                raise Violation(f"{wait} is granted though it has left")
            if wait.believes and not self._excused(wait):
                self._check_token(wait)
                if self.faultless:
                    self._check_order(wait)
            self.look(wait.line)
            self.world.happened("grant", wait.process)
            if int(wait.contender.node.name[-10:]) <= YOUNG:
                self.world.happened("grant in a young line", wait.process)

    def look(self, line: Line | None = None) -> None:
        """Look whether too many believe that they hold a lock."""
        for one in [line] if line is not None else {wait.line: None for wait in self._waits}:
            holders = [
                wait
                for wait in self._waits
                if wait.line is one and wait.believes and not self._excused(wait)
            ]
            if len(holders) > 1 and sum(wait.weight for wait in holders) > 1.0001:
                raise Violation(f"two holders: {' and '.join(map(str, holders))}")

    def holder(self) -> Wait | None:
        """Return somebody who holds a lock."""
        return next((wait for wait in self._waits if wait.believes), None)

    def _excused(self, wait: Wait, paths: Container[str] | None = None) -> bool:
        """Whether an operator has removed its node, which it learns by its next heartbeat.

        :param paths: what the operator has removed; by default all that were
        """
        path = wait.contender.path
        return any(
            grant.node is not None
            and f"{path}/{grant.node.name}" in (self.broken if paths is None else paths)
            for grant in _grants(wait.contender)
        )

    def notices(self, paths: list[str]) -> None:
        """Look whether the holder of a removed node knows by now that it has lost the lock."""
        for wait in self._waits:
            if wait.believes and self._excused(wait, paths):
                raise Violation(f"{wait} does not know that it was broken")

    def _check_token(self, wait: Wait) -> None:
        if wait.line.limit:
            return
        alone = wait.kind != "reader"
        token = wait.contender.node.token, getattr(wait.contender, "turn", 0)
        of_one, of_any = self._tokens.get(wait.line.name, ((0, 0), (0, 0)))
        if token <= (of_any if alone else of_one):
            raise Violation(f"{wait} has token {token} after {of_any}")
        self._tokens[wait.line.name] = token if alone else of_one, max(token, of_any)

    def _check_order(self, wait: Wait) -> None:
        for other in self._waits:
            if (
                other.line is wait.line
                and other.kind == wait.kind == "mutex"
                and not (other.contender.granted or other.contender.left)
                and other.began < wait.began - EARLIER
                and other.connected
            ):
                raise Violation(f"{wait} overtook {other}")

    def check_rest(self, process: Process) -> None:
        """Look for watches that nobody needs in a process that waits for nothing."""
        session, client = process.session, process.client
        busy = session.contenders or session._in_flight or session._parked or client.steps
        if session.connected and not busy and not session.watches.watchers and client.watchers:
            raise Violation(f"watches are left in {process}: {list(client.watchers)}")

    # --- at the end ------------------------------------------------------------------------------

    def check_end(self, processes: list[Process], servers: list[Any]) -> None:
        """Look for what is left when nobody wants anything any more."""
        if self._waits:
            raise Violation(f"{next(iter(self._waits))} never ended")
        leader = next((one for one in servers if one.role == "leading" and one.serving), None)
        if leader is None:
            raise Violation("the servers found no leader")
        left = [path for path in leader.tree.nodes if path != "/"]
        if left:
            raise Violation(f"nodes are left: {left}")
        for server in servers:
            if server.tree.watches:
                raise Violation(f"watches are left at {server}: {list(server.tree.watches)}")
        for process in processes:
            if process.dead:
                continue
            session = process.session
            for name, some in {
                "contenders": session.contenders,
                "watchers": session.watches.watchers or process.client.watchers,
                "neighbours": session.local_nodes,
                "lines": session.lines,
                "newest": session.newest,
                "batches": session.batches,
                "deletes": session.deletes.pending,
                "beneficiaries": session.heartbeat.beneficiaries(),
                "requests": session._in_flight,
                "steps": session._parked or process.client.steps,
            }.items():
                if some:
                    raise Violation(f"{len(some)} {name} are left in {process}")
