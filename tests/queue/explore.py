"""Takes every step in every world, breadth first: ``python -m tests.queue.explore --help``.

`tests.queue.test_explore` does so for a minute. The first violation that it meets is one of those
that take the fewest steps.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.keys.limits import MAX_INT
from distlock.keys.znodes import WORN
from distlock.queue import policies
from distlock.queue.local_line import LocalLine
from distlock.queue.machine import Machine
from tests.kit import table
from tests.kit.helpers import without_garbage_collection
from tests.queue.invariants import violation
from tests.queue.steps import steps
from tests.queue.world import Faults, Process, beginning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.queue.world import World

#: How one got to a world: the way to the one before it, and the last step.
Way = tuple["Way", str] | None


class Exploration(NamedTuple):
    """The outcome of a search."""

    states: int
    depth: int
    #: Whether there was nothing further to see; else the depth or the time was over.
    complete: bool
    #: The steps to the first violation, and the violation.
    trace: Sequence[str] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        end = "to the end" if self.complete else f"{self.depth} steps deep"
        lines = [f"{self.states} states, {end}, {self.seconds:.1f} s"]
        lines += [f"{number:4}. {step}" for number, step in enumerate(self.trace, 1)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Scope:
    """The contenders, and the faults that may happen."""

    policies: Sequence[policies.Policy] = (policies.MUTEX,) * 3
    faults: Faults = field(default_factory=Faults)
    homes: Sequence[int] = (0, 0, 1)
    line: bool = True
    #: The first number that the line gives.
    begins_at: int = 0
    try_only: Sequence[int] = ()
    #: Whether the links are long.
    far: bool = False
    revocable: bool = False
    #: How many steps the test looks ahead.
    depth: int = 1000

    def beginning(self, machine: type[Machine] = Machine, *, slow: bool = False) -> World:
        """Return the first world of the scope."""
        return beginning(
            self.policies,
            self.faults,
            homes=self.homes,
            machine=machine,
            line=self.line,
            begins_at=self.begins_at,
            slow=slow,
            try_only=self.try_only,
            far=self.far,
            revocable=self.revocable,
        )


@without_garbage_collection()
def explore(
    start: World,
    depth: int = 1000,
    seconds: float = 1e9,
    violation: Callable[[World], str | None] = violation,
) -> Exploration:
    """Take every order of steps, at most `depth` of them; stop at the first violation."""
    began = time.monotonic()
    seen = {hash(start.key)}
    edge: list[tuple[World, Way]] = [(start, None)]
    for level in range(depth):
        further: list[tuple[World, Way]] = []
        for world, way in edge:
            for what, then in steps(world):
                key = hash(then.key)
                if key in seen:
                    continue
                seen.add(key)
                wrong = then.wrong or violation(then)
                if wrong:
                    trace = [*_steps((way, what)), wrong]
                    return Exploration(len(seen), level + 1, False, trace, time.monotonic() - began)
                further.append((then, (way, what)))
            if time.monotonic() - began > seconds:
                return Exploration(len(seen), level, False, (), time.monotonic() - began)
        if not further:
            return Exploration(len(seen), level, True, (), time.monotonic() - began)
        edge = further
    return Exploration(len(seen), depth, False, (), time.monotonic() - began)


def _steps(way: Way) -> list[str]:
    found = []
    while way is not None:
        way, step = way
        found.append(step)
    return found[::-1]


#: It takes the place of contender 0.
DOWNGRADED = policies.downgraded(Machine(policies.WRITER, Process(0, ()), LocalLine(), me=0))
MUTEXES = (policies.MUTEX,) * 3
NO_MORE = {"leaves": 0, "releases": 0}
ALL = Faults(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1)
#: Three contenders are in two processes unless something else is said.
SCOPES: dict[str, Scope] = {
    "three come and go": Scope(faults=Faults(leaves=1, releases=0)),
    "a delete is sent before its release is applied": Scope(faults=Faults(leaves=0, releases=1)),
    "a neighbour is handed the lock": Scope(
        faults=Faults(leaves=1, releases=2), homes=(0, 0, 0), depth=14
    ),
    "a neighbour is handed the lock, and a cut": Scope(
        faults=Faults(leaves=0, releases=2, cuts=1), homes=(0, 0, 0), depth=12
    ),
    "a neighbour is handed the lock, and an expiry": Scope(
        faults=Faults(leaves=0, releases=2, lapses=1, expiries=1), homes=(0, 0, 0), depth=12
    ),
    "a neighbour is handed the lock, and its node is broken": Scope(
        faults=Faults(leaves=0, releases=2, breaks=1, beats=1), homes=(0, 0, 0), depth=12
    ),
    "three on long links": Scope(faults=Faults(leaves=1, releases=0), homes=(0, 1, 2), far=True),
    "four on long links": Scope(
        (policies.MUTEX,) * 4, Faults(leaves=1, releases=0), (0, 1, 2, 3), far=True, depth=13
    ),
    "two neighbours and a stranger on long links": Scope(
        faults=Faults(leaves=1, releases=0), far=True
    ),
    "long links, and a cut": Scope(faults=Faults(cuts=1, **NO_MORE), homes=(0, 1, 2), far=True),
    "long links, and a node is broken or changed": Scope(
        faults=Faults(breaks=1, touches=1, **NO_MORE), homes=(0, 1, 2), far=True, depth=13
    ),
    "long links, and the line is removed": Scope(
        faults=Faults(removals=1, **NO_MORE), homes=(0, 1, 2), far=True, depth=12
    ),
    "long links, and an expiry": Scope(
        faults=Faults(lapses=1, expiries=1, **NO_MORE), homes=(0, 1, 2), far=True, depth=10
    ),
    "long links, and a reader": Scope(
        (policies.READER, policies.MUTEX, policies.MUTEX),
        Faults(leaves=1, releases=0),
        (0, 1, 2),
        far=True,
        depth=13,
    ),
    "an exception lands in a join": Scope(faults=Faults(interrupts=1, **NO_MORE)),
    "a connection is cut": Scope(faults=Faults(cuts=1, **NO_MORE), depth=12),
    "a session expires": Scope(faults=Faults(lapses=1, expiries=1, **NO_MORE), depth=10),
    "an operator breaks a node": Scope(faults=Faults(breaks=1, beats=2, **NO_MORE), depth=10),
    "an operator removes the line": Scope(faults=Faults(removals=1, **NO_MORE), depth=13),
    "a deposed leader answers": Scope(
        MUTEXES[:2], Faults(cuts=1, deposed=1, leaves=1, releases=0), (0, 1)
    ),
    "neighbours, and a deposed leader": Scope(
        MUTEXES[:2], Faults(cuts=1, deposed=1, interrupts=1, **NO_MORE), (0, 0), depth=13
    ),
    "one holds the lock for too long": Scope(
        MUTEXES[:2], Faults(overstays=1, lapses=1, leaves=0, releases=1), (0, 0)
    ),
    "one finds its node gone": Scope(
        faults=Faults(breaks=1, looks=1, beats=1, **NO_MORE), depth=11
    ),
    "a lapse, and a node is broken": Scope(
        MUTEXES[:2], Faults(lapses=1, breaks=1, beats=1, **NO_MORE), (0, 0), depth=13
    ),
    "a lapse, and the line is removed": Scope(
        faults=Faults(lapses=1, removals=1, beats=1, **NO_MORE), depth=11
    ),
    "one transaction begins the line anew": Scope(
        faults=Faults(renewals=1, **NO_MORE), begins_at=2, depth=13
    ),
    "the numbers of the line run out": Scope(
        faults=Faults(leaves=1, releases=0), begins_at=WORN - 1
    ),
    "the counter sticks": Scope(
        (policies.MUTEX, policies.READER, policies.WRITER),
        Faults(leaves=1, releases=0),
        begins_at=MAX_INT,
        depth=13,
    ),
    "the numbers run out, and a cut": Scope(
        MUTEXES[:2], Faults(cuts=1, leaves=1, releases=0), (0, 1), begins_at=WORN - 1
    ),
    "the numbers have run out, and an expiry": Scope(
        MUTEXES[:2], Faults(lapses=1, expiries=1, **NO_MORE), (0, 1), begins_at=WORN, depth=11
    ),
    "one is asked to leave": Scope(
        faults=Faults(touches=1, leaves=1, releases=0), revocable=True, depth=14
    ),
    "one is asked to leave, a cut, an expiry": Scope(
        MUTEXES[:2],
        Faults(touches=1, cuts=1, lapses=1, expiries=1, **NO_MORE),
        (0, 1),
        revocable=True,
        depth=11,
    ),
    "some do not queue": Scope(
        (policies.MUTEX, policies.UNFAIR, policies.UNFAIR), Faults(**NO_MORE)
    ),
    "a cut, and one does not queue": Scope(
        (policies.MUTEX, policies.UNFAIR), Faults(cuts=1, leaves=1, releases=0), (0, 1)
    ),
    "readers and a writer": Scope(
        (policies.READER, policies.READER, policies.WRITER), Faults(leaves=1, releases=0)
    ),
    "a writer becomes a reader, and a cut": Scope(
        (policies.WRITER, DOWNGRADED, policies.WRITER), Faults(cuts=1, **NO_MORE)
    ),
    "a mutex beside a reader, and a cut": Scope(
        (policies.READER, policies.MUTEX), Faults(cuts=1, leaves=1, releases=0), (0, 1)
    ),
    "one only tries": Scope(faults=Faults(leaves=1, releases=0), try_only=(1,)),
    "two strangers, a cut, an expiry": Scope(
        MUTEXES[:2], Faults(cuts=1, lapses=1, expiries=1, **NO_MORE), (0, 1), depth=10
    ),
    "two neighbours, a cut, an expiry": Scope(
        MUTEXES[:2], Faults(cuts=1, lapses=1, expiries=1, **NO_MORE), (0, 0), depth=10
    ),
    "two strangers, all faults": Scope(MUTEXES[:2], ALL, (0, 1), line=False, depth=7),
    "two neighbours, all faults": Scope(MUTEXES[:2], ALL, (0, 0), line=False, depth=7),
    "three, all faults": Scope(faults=ALL, depth=5),
}


def main(scopes: Mapping[str, Any] = SCOPES, explore: Callable[..., Exploration] = explore) -> None:
    """Explore the scopes that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--scope", action="append", choices=scopes)
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args()
    table.hold_machines()
    for name in options.scope or scopes:
        start = scopes[name].beginning(slow=options.slow)
        print(f"{name}: {explore(start, options.depth, options.seconds)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
