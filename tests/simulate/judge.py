"""Says what must not be: two holders, a token that falls, a call that does not end, a leftover."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from distlock import signals
from distlock.keys.znodes import READ

from .world import Violation

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from .callers import Caller, Line
    from .process import Process
    from .world import World

#: How much longer than its timeout a call may last, in seconds of its running process (promise 7).
OVERRUN = 0.5
#: By how much earlier a waiter has come for certain, in seconds.
EARLIER = 0.5
#: The greatest number in a young line.
YOUNG = 2


class Claim:
    """A hold, as the one who has it sees it."""

    def __init__(self, caller: Caller, line: Line, hold: Any) -> None:
        self.caller = caller
        self.process: Process = caller.process
        self.line = line
        self.hold = hold
        #: Several holds of one owner are no harm.
        self.owner = getattr(hold, "owner", caller)
        self.since = self.process.world.time
        self.reads = READ in hold.path

    def __str__(self) -> str:
        return f"{self.caller}'s {self.hold.path}"

    @property
    def believed(self) -> bool:
        """Whether its process runs, and finds by its own clock that it holds the lock."""
        if not self.process.runs:
            return False
        world, here = self.process.world, self.process.world.here
        world.here = self.process
        try:
            return not (self.hold.lost or self.hold.released)
        finally:
            world.here = here


class Judge:
    """Looks at all calls and holds."""

    def __init__(self, world: World) -> None:
        self.world = world
        #: Whether nothing was broken so far.
        self.faultless = True
        self.grants = 0
        self.callers: list[Caller] = []
        self._claims: list[Claim] = []
        #: By the line: the greatest token of one who had it alone, and of anybody.
        self._tokens: dict[str, tuple[Any, Any]] = {}
        #: The leases that were released, as owner and token: another process of the owner may hear
        #: only after that that it had one.
        self._given_back: set[tuple[Any, int]] = set()
        #: The paths of nodes that an operator has removed.
        self.broken: set[str] = set()
        #: When the leader's clock was set last.
        self.clock_set_at = math.inf

    @contextmanager
    def hears(self) -> Iterator[None]:
        """Hear of all that is acquired and released."""
        heard = {signals.lock_acquired: self._acquired, signals.lock_released: self._released}
        try:
            for signal, receiver in heard.items():
                signal.connect(receiver)
            yield
        finally:
            for signal, receiver in heard.items():
                signal.disconnect(receiver)

    def _acquired(self, *, hold: Any, **_: Any) -> None:
        from .callers import CALLER  # noqa: PLC0415

        caller = CALLER.get()
        line = next(line for line in caller.lines if line.name == hold.key.rpartition(":")[2])
        claim = Claim(caller, line, hold)
        if (claim.owner, hold.token) in self._given_back:
            caller.wants = None
            return
        self._claims.append(claim)
        self.grants += 1
        self.world.say(claim, "is granted")
        if claim.believed and not self._excused(claim):
            self._check_token(claim)
            if self.faultless:
                self._check_order(claim)
        caller.wants = None
        self.look(line)
        self.world.happened("grant", claim.process)
        number = hold.path[-10:]
        if number.isdigit() and int(number) <= YOUNG:
            self.world.happened("grant in a young line", claim.process)

    def _released(self, *, hold: Any, **_: Any) -> None:
        if hasattr(hold, "owner"):
            self._given_back.add((hold.owner, hold.token))
        self.give_up(hold)
        self.look()

    def give_up(self, hold: Any) -> None:
        """Take note that nobody relies on a hold any more."""
        lease = hold.path, getattr(hold, "owner", None)  # which any process of its owner releases
        self._claims = [
            one
            for one in self._claims
            if one.hold is not hold and (one.hold.path, one.owner) != lease
        ]

    def hold_of(self, caller: Caller) -> Any:
        """Return one of its holds."""
        return next(claim.hold for claim in self._claims if claim.caller is caller)

    def claims_in(self, process: Process) -> list[Claim]:
        """Return what is held in a process."""
        return [claim for claim in self._claims if claim.process is process and claim.believed]

    def end_of_call(self, caller: Caller) -> None:
        """Take note that a caller holds nothing any more."""
        mine = [claim for claim in self._claims if claim.caller is caller]
        self._claims = [claim for claim in self._claims if claim.caller is not caller]
        for claim in mine:
            if claim.owner is caller and claim.believed:
                raise Violation(f"{claim} was not left")

    def forget(self, process: Process) -> None:
        """Take note that a process has died."""
        self._claims = [one for one in self._claims if one.process is not process]

    def look(self, line: Line | None = None) -> None:
        """Look whether too many believe that they hold a lock."""
        for one in [line] if line is not None else {claim.line: None for claim in self._claims}:
            of_owners: dict[Any, float] = {}
            claims = [c for c in self._claims if c.line is one]
            if len(claims) < 2:
                continue
            holders = [c for c in claims if c.believed and not self._excused(c)]
            for claim in holders:
                weight = 1 / 1000 if claim.reads else 1 / (claim.line.limit or 1)
                of_owners[claim.owner] = min(of_owners.get(claim.owner, 0.0) + weight, 1.0)
            fooled = one.where.startswith("@leases") and self._fooled(holders)
            if sum(of_owners.values()) > 1.0001 and not fooled:
                raise Violation(f"two holders: {' and '.join(map(str, holders))}")

    def _fooled(self, holders: list[Claim]) -> bool:
        """Whether one has taken a lease that it first saw after the leader's clock was set."""
        at = self.clock_set_at
        return (
            any(
                hasattr(one.hold, "owner") and not (one.process.looked_at or at) < at < one.since
                for one in holders
            )
            and at > 0
        )

    def holder(self) -> Claim | None:
        """Return somebody who holds a lock."""
        return next((claim for claim in self._claims if claim.believed), None)

    def _excused(self, claim: Claim, paths: Container[str] | None = None) -> bool:
        """Whether an operator has removed its node, which it learns by its next heartbeat.

        :param paths: what the operator has removed; by default all that were
        """
        return claim.hold.path in (self.broken if paths is None else paths)

    def notices(self, paths: list[str]) -> None:
        """Look whether the holder of a removed node knows by now that it has lost the lock."""
        for claim in self._claims:
            if self._excused(claim, paths) and claim.believed:
                raise Violation(f"{claim} does not know that it was broken")

    def _check_token(self, claim: Claim) -> None:
        hold, name = claim.hold, claim.line.name
        if claim.line.limit or any(c.owner is claim.owner for c in self._claims if c is not claim):
            return  # a writer's read lock has its token
        token = hold.token, hold.turn
        of_one, of_any = self._tokens.get(name, ((0, 0), (0, 0)))
        if token <= (of_one if claim.reads else of_any):
            raise Violation(f"{claim} has token {token} after {of_any}")
        self._tokens[name] = of_one if claim.reads else token, max(token, of_any)

    def _check_order(self, claim: Claim) -> None:
        mine = claim.caller.wants
        for other in self.callers:
            theirs = other.wants
            if (
                mine is not None
                and theirs is not None
                and theirs[:2] == mine[:2]
                and mine[1] == "mutex"
                and theirs[2] < mine[2] - EARLIER
                and other.connected
                and other.process.runs
            ):
                raise Violation(f"{claim} overtook {other}")

    def check_rest(self, process: Process) -> None:
        """Look for watches that nobody needs in a process that waits for nothing."""
        session, client = process.session, process.client
        busy = session.contenders or session._in_flight or session._parked or client.steps
        if session.connected and not busy and not session.watches.watchers and process.watchers:
            raise Violation(f"watches are left in {process}: {process.watchers}")

    # --- at the end ------------------------------------------------------------------------------

    def left(self, processes: list[Process], servers: list[Any]) -> str:
        """Say what is left when nobody wants anything any more."""
        for caller in self.callers:
            if not (caller.over or caller.process.dead):
                return f"{caller} never ended"
        leader = next((one for one in servers if one.role == "leading" and one.serving), None)
        if leader is None:
            return "the servers found no leader"
        left = [path for path in leader.tree.nodes if "/@leases" not in path]
        if left[1:] not in ([], ["/d"]):
            return f"nodes are left: {left}"
        for server in servers:
            if server.tree.watches:
                return f"watches are left at {server}: {list(server.tree.watches)}"
        for process in processes:
            session = process.session
            for name, some in {
                "contenders": session.contenders,
                "watchers": session.watches.watchers or process.watchers,
                "neighbours": session.local_nodes,
                "lines": session.lines,
                "newest": session.newest,
                "batches": session.batches,
                "deletes": session.deletes.pending,
                "beneficiaries": session.heartbeat.beneficiaries(),
                "requests": session._in_flight,
                "steps": session._parked or process.client.steps,
            }.items():
                if some and not process.dead:
                    return f"{len(some)} {name} are left in {process}"
        return ""
