"""What is to be reached, always within one run, and what was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.bench import works
from benchmarks.bench.figures import Spread, ratio
from benchmarks.bench.works import CURATOR, FLOOR, KAZOO, NOTIFIED, REDIS

if TYPE_CHECKING:
    from benchmarks.bench.figures import Series
    from benchmarks.bench.run import Results
    from benchmarks.bench.works import Contender, Work

#: Returns a figure of a run; None, or `KeyError`, where it was not measured.
Measure = Callable[["Results"], Spread | None]


@dataclass(frozen=True)
class Verdict:
    """A row of the table.

    :ivar measured: None where it was not
    :ivar bound: "≤" or "≥" and a number; empty for a figure that is for information
    """

    what: str
    measured: Spread | None
    bound: str

    @property
    def met(self) -> bool | None:
        """Whether the median is within the bound; None where one of them is missing."""
        if self.measured is None or not self.bound:
            return None
        direction, limit = self.bound.split()
        median = self.measured.median
        return median <= float(limit) if direction == "≤" else median >= float(limit)


def judge(results: Results) -> list[Verdict]:
    """Return a verdict for each target."""
    return [Verdict(what, _measured(measure, results), bound) for what, measure, bound in TARGETS]


def _measured(measure: Measure, results: Results) -> Spread | None:
    try:
        return measure(results)
    except KeyError:
        return None


# --- where the figures come from -----------------------------------------------------------------


def to(
    theirs: Contender, work: Work, *, ours: Contender = works.DISTLOCK, field: str = "figures"
) -> Measure:
    """Compare two contenders round by round, by this field of `Series`."""

    def measure(results: Results) -> Spread:
        of = results.series[work.name]
        return ratio(getattr(of[ours.name], field), getattr(of[theirs.name], field))

    return measure


def on_redis(theirs: Contender, work: Work) -> Measure:
    """Compare distlock's engine for Redis with a lock of Redis' own."""
    return to(theirs, work, ours=works.ON_REDIS)


def beside(field: str, one: str | int, other: str | int) -> Measure:
    """Compare two series of this field of `Results`, round by round."""
    return lambda results: ratio(getattr(results, field)[one], getattr(results, field)[other])


def trips(work: Work) -> Measure:
    """Return the round trips, which are whole ones but for what clock and link have added."""
    return lambda results: _alone(round(results.trips[works.DISTLOCK.name][work.name]))


def left(results: Results) -> Spread | None:
    return None if results.left is None else _alone(results.left)


def fairness(results: Results) -> Spread | None:
    """Return Jain's index at the work where it is lowest."""
    lines = (series.fairness for series in _series(results, works.DISTLOCK))
    return min((Spread.of(line) for line in lines if line), default=None)


def overlaps(results: Results) -> Spread | None:
    """Return how often two held one lock or an update was lost, at any work."""
    found = [series.overlaps for series in _series(results, works.DISTLOCK, works.HANDOFF)]
    return _alone(sum(found)) if found else None


def _series(results: Results, *contenders: Contender) -> list[Series]:
    """Return all that these contenders have done."""
    of_all = results.series.values()
    return [of[each.name] for of in of_all for each in contenders if each.name in of]


def _alone(figure: float) -> Spread:
    return Spread(figure, figure, figure)


# --- what is to be reached -----------------------------------------------------------------------

_ALONE, _REFUSED, _ENSEMBLE = works.UNCONTENDED, works.REFUSED, works.ENSEMBLE
_THREADS, _PROCESSES, _HANDED_ON = works.THREADS, works.PROCESSES, works.HANDED_ON
_REENTRY = beside("reentry", "distlock", "RLock")
_CROWDS = beside("crowds", 1000, 10)
_IMPORTS = beside("imports", "distlock", "kazoo and Django")

#: What it is, where the figure comes from, and its bound.
TARGETS: Final[tuple[tuple[str, Measure, str], ...]] = (
    ("uncontended: time to kazoo's `Lock`", to(KAZOO, _ALONE), "≤ 0.6"),
    ("… time to Curator", to(CURATOR, _ALONE), "≤ 0.7"),
    ("… time to the bare client", to(FLOOR, _ALONE), "≤ 1.4"),
    ("… processor time to the bare client", to(FLOOR, _ALONE, field="processor"), "≤ 3"),
    ("… time to redis-py's `Lock`", to(REDIS, _ALONE), "≤ 1.6"),
    ("… round trips waited for", trips(_ALONE), "≤ 1"),
    ("refused `acquire(blocking=False)`: time to Curator", to(CURATOR, _REFUSED), "≤ 0.7"),
    ("… round trips waited for", trips(_REFUSED), "≤ 1"),
    ("… nodes and watches left behind", left, "≤ 0"),
    ("reentrant acquire and release: time to `threading.RLock`", _REENTRY, "≤ 15"),
    ("8 threads of one process, strict FIFO: rate to kazoo's `Lock`", to(KAZOO, _THREADS), "≥ 12"),
    ("… rate to Curator", to(CURATOR, _THREADS), "≥ 9"),
    ("… with `handoff=50`: rate to Curator", to(CURATOR, _THREADS, ours=works.HANDOFF), "≥ 35"),
    ("8 processes: rate to kazoo's `Lock`", to(KAZOO, _PROCESSES), "≥ 2"),
    ("… rate to Curator", to(CURATOR, _PROCESSES), "≥ 1.4"),
    ("… each holds it for 2 ms: idle time to redis-py's `Lock`", to(REDIS, _HANDED_ON), "≤ 0.1"),
    ("16 threads in 4 processes, 10 keys: rate to Curator", to(CURATOR, works.KEYS_10), "≥ 1"),
    ("… 100 keys: rate to Curator", to(CURATOR, works.KEYS_100), "≥ 1"),
    ("three servers, uncontended: time to Curator", to(CURATOR, _ENSEMBLE), "≤ 0.75"),
    (
        "1,000 waiters: time of an acquire to that with 10 waiters",
        beside("crowds", 1000, 10),
        "≤ 4",
    ),
    ("on Redis, uncontended: time to redis-py's `Lock`", on_redis(REDIS, _ALONE), "≤ 1.3"),
    ("… 8 processes: rate to python-redis-lock", on_redis(NOTIFIED, _PROCESSES), "≥ 1"),
    ("… 8 threads: rate to python-redis-lock", on_redis(NOTIFIED, _THREADS), "≥ 3"),
    (
        "… each holds it for 2 ms: idle time to python-redis-lock",
        on_redis(NOTIFIED, _HANDED_ON),
        "≤ 1",
    ),
    ("all works: Jain's index over the contenders, at its lowest", fairness, "≥ 0.99"),
    ("… overlaps", overlaps, "≤ 0"),
    ("`import distlock`: time to `import kazoo.client, django`", _IMPORTS, "≤ 1.3"),
    ("1 ms link, uncontended: time to kazoo's `Lock`", to(KAZOO, works.LINK), ""),
    ("… time to Curator", to(CURATOR, works.LINK), ""),
    ("… time to the bare client", to(FLOOR, works.LINK), ""),
    ("1 ms link, 8 threads: rate to kazoo's `Lock`", to(KAZOO, works.LINK_THREADS), ""),
    ("… rate to Curator", to(CURATOR, works.LINK_THREADS), ""),
    ("1 ms link, 8 processes: rate to kazoo's `Lock`", to(KAZOO, works.LINK_PROCESSES), ""),
    ("… rate to Curator", to(CURATOR, works.LINK_PROCESSES), ""),
)
