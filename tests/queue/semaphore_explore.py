"""Takes every step of a semaphore's contenders: ``python -m tests.queue.semaphore_explore``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.queue import explore as mutexes
from tests.queue.semaphore_invariants import violation
from tests.queue.semaphore_world import Bugs, beginning
from tests.queue.world import Faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.queue.world import World

explore = partial(mutexes.explore, violation=violation)
NO_MORE = {"leaves": 0, "releases": 0}


@dataclass(frozen=True)
class Scope:
    """The contenders, and the faults that may happen."""

    limit: int = 1
    faults: Faults = field(default_factory=lambda: Faults(**NO_MORE))
    #: How many permits each contender wants, and its process.
    wanted: Sequence[int] = (1, 1)
    homes: Sequence[int] = (0, 1)
    line: bool = True
    try_only: Sequence[int] = ()
    #: The limit that was set while nobody was there, if one was.
    kept: int | None = None
    #: How many steps the test looks ahead.
    depth: int = 1000

    def beginning(self, bugs: Bugs | None = None, *, slow: bool = False) -> World:
        """Return the first world of the scope."""
        return beginning(
            self.wanted,
            self.limit,
            self.faults,
            homes=self.homes,
            bugs=bugs or Bugs(),
            line=self.line,
            slow=slow,
            try_only=self.try_only,
            kept=self.kept,
        )


def faults(**more: int) -> Faults:
    """Return these faults and no other."""
    return Faults(**{**NO_MORE, **more})


ALL = Faults(1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1)
THREE = {"wanted": (1, 1, 1), "homes": (0, 0, 1)}
SCOPES: dict[str, Scope] = {
    "two, and one leaves at any time": Scope(faults=faults(leaves=1)),
    "three come and go": Scope(1, faults(leaves=1), **THREE, depth=16),  # type: ignore[arg-type]
    "three for two permits": Scope(2, faults(leaves=1), **THREE, depth=15),  # type: ignore[arg-type]
    "one wants two permits": Scope(2, faults(leaves=1), (2, 1)),
    "a connection is cut": Scope(1, faults(cuts=1)),
    "a cut, and one wants two permits": Scope(2, faults(cuts=1, leaves=1), (2, 1), depth=12),
    "a session expires": Scope(1, faults(lapses=1, expiries=1), depth=13),
    "an operator breaks a node": Scope(1, faults(breaks=1, beats=2), depth=14),
    "an operator removes all": Scope(1, faults(removals=1), line=False, depth=18),
    "the limit is lowered and raised": Scope(2, faults(limits=2)),
    "a lower limit was set while it was idle": Scope(2, faults(leaves=1), line=False, kept=1),
    "a higher limit was set while it was idle": Scope(1, wanted=(2, 1), line=False, kept=2),
    "an exception lands in a join": Scope(1, faults(interrupts=1)),
    "one holds a permit for too long": Scope(1, faults(overstays=1, lapses=1), depth=17),
    "one finds its permit gone": Scope(1, faults(breaks=1, looks=1), depth=17),
    "a deposed leader answers": Scope(1, faults(cuts=1, deposed=1)),
    "a lapse, and a node is broken": Scope(1, faults(lapses=1, breaks=1, beats=1), depth=12),
    "one only tries": Scope(1, faults(leaves=1, cuts=1), try_only=(1,), depth=13),
    "two, all faults": Scope(1, ALL, line=False, depth=7),
    "two for two permits, all faults": Scope(2, ALL, (2, 1), (0, 0), depth=6),
    "three, all faults": Scope(2, ALL, **THREE, depth=5),  # type: ignore[arg-type]
}


if __name__ == "__main__":
    mutexes.main(SCOPES, explore)
