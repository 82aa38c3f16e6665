"""What is to be reached, always as a ratio within one run, and what was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.bench import works
from benchmarks.bench.figures import Spread, ratio

if TYPE_CHECKING:
    from benchmarks.bench.run import Results
    from benchmarks.bench.works import Contender, Work


@dataclass(frozen=True)
class Verdict:
    """A row of the table.

    :ivar measured: None where it was not
    :ivar met: None where it was not measured
    """

    what: str
    measured: Spread | None
    bound: str
    met: bool | None


@dataclass(frozen=True)
class Target:
    """A ratio of two contenders at one work: at most, or at least, so much."""

    what: str
    work: Work
    mine: Contender
    theirs: Contender
    direction: Literal["≤", "≥"]
    limit: float

    def judge(self, results: Results) -> Verdict:
        of = results.series.get(self.work.name, {})
        mine, theirs = of.get(self.mine.name), of.get(self.theirs.name)
        measured = ratio(mine.figures, theirs.figures) if mine and theirs else None
        return verdict(self.what, measured, self.direction, self.limit)


TARGETS = (
    Target(
        "uncontended acquire and release: time relative to kazoo's `Lock`",
        works.UNCONTENDED,
        works.DISTLOCK,
        works.KAZOO,
        "≤",
        0.60,
    ),
    Target(
        "the same, relative to Curator", works.UNCONTENDED, works.DISTLOCK, works.CURATOR, "≤", 1.0
    ),
    Target(
        "the same, relative to create and delete, each waited for",
        works.UNCONTENDED,
        works.DISTLOCK,
        works.RAW,
        "≤",
        1.0,
    ),
    Target(
        "8 threads of one process, strict FIFO: acquisitions relative to kazoo's `Lock`",
        works.THREADS,
        works.DISTLOCK,
        works.KAZOO,
        "≥",
        5.0,
    ),
    Target("the same, relative to Curator", works.THREADS, works.DISTLOCK, works.CURATOR, "≥", 2.5),
    Target(
        "the same with `handoff=50`, relative to Curator",
        works.THREADS,
        works.HANDOFF,
        works.CURATOR,
        "≥",
        50.0,
    ),
    Target(
        "8 processes: acquisitions relative to kazoo's `Lock`",
        works.PROCESSES,
        works.DISTLOCK,
        works.KAZOO,
        "≥",
        1.5,
    ),
    Target(
        "idle time at a hand-off, holds of 2 ms: relative to redis-py's `Lock`",
        works.HANDED_ON,
        works.DISTLOCK,
        works.REDIS,
        "≤",
        0.1,
    ),
)


def judge(results: Results) -> list[Verdict]:
    """Return a verdict for each target."""
    verdicts = [target.judge(results) for target in TARGETS]
    reentry = results.reentry
    verdicts.append(
        verdict(
            "reentrant acquire and release: time relative to `threading.RLock`",
            ratio(reentry["distlock"], reentry["RLock"]) if reentry else None,
            "≤",
            15,
        )
    )
    imports = results.imports
    verdicts.append(
        verdict(
            "`import distlock`: time relative to `import kazoo.client, django`",
            ratio(imports["distlock"], imports["kazoo and Django"]) if imports else None,
            "≤",
            1.3,
        )
    )
    # Whole ones, but for what the clock and the link have added.
    trips = results.trips.get(works.DISTLOCK.name, {}).get(works.REFUSED.name)
    verdicts += [
        verdict(
            "refused `acquire(blocking=False)`, round trips",
            _alone(trips and round(trips, 1)),
            "≤",
            2,
        ),
        verdict("nodes and watches left behind", _alone(results.left), "≤", 0),
    ]
    all_series = results.series.values()
    lines = [mine.fairness for of in all_series if (mine := of.get("distlock")) and mine.fairness]
    fairness = min((Spread.of(line).median for line in lines), default=None)
    verdicts.append(
        verdict(
            "fairness: Jain's index over contenders, strict FIFO, the worst of all works",
            _alone(fairness),
            "≥",
            0.99,
        )
    )
    ours = [mine for of in all_series for name, mine in of.items() if name.startswith("distlock")]
    overlaps = float(sum(mine.overlaps for mine in ours))
    verdicts.append(
        verdict(
            "overlaps: two holders, or a lost update, all works",
            _alone(overlaps if ours else None),
            "≤",
            0,
        )
    )
    return verdicts


def verdict(
    what: str, measured: Spread | None, direction: Literal["≤", "≥"], limit: float
) -> Verdict:
    """Compare a median with its bound."""
    met = None
    if measured is not None:
        within = measured.median <= limit
        met = within if direction == "≤" else measured.median >= limit
    return Verdict(what, measured, f"{direction} {limit:g}", met)


def _alone(figure: float | None) -> Spread | None:
    return None if figure is None else Spread(figure, figure, figure)
