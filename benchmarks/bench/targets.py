"""What is to be reached, always within one run, and what was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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
    :ivar why: what stands in the way of the bound
    """

    what: str
    measured: Spread | None
    bound: str
    why: str

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
    return [
        Verdict(what, _measured(measure, results), bound, " ".join(why))
        for what, measure, bound, *why in TARGETS
    ]


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

_TURNS = "two Python threads take turns"
_COLD = "an event, then a list, and Python that has cooled off in between"
_PROMISES = "sessions, a line and a token"

#: What it is, where the figure comes from, its bound, and why a median may be beyond it.
TARGETS: Final[tuple[tuple[Any, ...], ...]] = (
    ("1 ms link, 8 processes: rate to kazoo's `Lock`", to(KAZOO, works.LINK_PROCESSES), "≥ 2"),
    ("… rate to Curator", to(CURATOR, works.LINK_PROCESSES), "≥ 2.2"),
    (
        "5 ms link, 8 processes: rate to kazoo's `Lock`",
        to(KAZOO, works.LONG_LINK_PROCESSES),
        "≥ 1.9",
    ),
    ("… rate to Curator", to(CURATOR, works.LONG_LINK_PROCESSES), ""),
    ("1 ms link, uncontended: time to kazoo's `Lock`", to(KAZOO, works.LINK), ""),
    ("… time to Curator", to(CURATOR, works.LINK), ""),
    ("… time to the bare client", to(FLOOR, works.LINK), ""),
    ("1 ms link, 8 threads: rate to kazoo's `Lock`", to(KAZOO, works.LINK_THREADS), ""),
    ("… rate to Curator", to(CURATOR, works.LINK_THREADS), ""),
    ("uncontended: time to kazoo's `Lock`", to(KAZOO, _ALONE), "≤ 0.6"),
    ("… time to Curator", to(CURATOR, _ALONE), "≤ 0.45", "Python beside compiled Java"),
    ("… time to the bare client", to(FLOOR, _ALONE), "≤ 1.15", "the promises of a hold"),
    ("… processor time to the bare client", to(FLOOR, _ALONE, field="processor"), "≤ 3"),
    ("… time to redis-py's `Lock`", to(REDIS, _ALONE), "≤ 1.5", "ZooKeeper itself takes longer"),
    ("… round trips waited for", trips(_ALONE), "≤ 1"),
    ("refused `acquire(blocking=False)`: time to Curator", to(CURATOR, _REFUSED), "≤ 0.7"),
    ("… round trips waited for", trips(_REFUSED), "≤ 1"),
    ("… nodes and watches left behind", left, "≤ 0"),
    (
        "reentrant acquire and release: time to `threading.RLock`",
        _REENTRY,
        "≤ 15",
        "the owner, the deadline and a look for a fork",
    ),
    (
        "8 threads of one process, strict FIFO: rate to kazoo's `Lock`",
        to(KAZOO, _THREADS),
        "≥ 10",
        _TURNS,
    ),
    ("… rate to Curator", to(CURATOR, _THREADS), "≥ 9", _TURNS),
    (
        "… with `handoff=50`: rate to Curator",
        to(CURATOR, _THREADS, ours=works.HANDOFF),
        "≥ 35",
        _TURNS,
    ),
    ("8 processes: rate to kazoo's `Lock`", to(KAZOO, _PROCESSES), "≥ 2", _COLD),
    ("… rate to Curator", to(CURATOR, _PROCESSES), "≥ 1.4", _COLD),
    ("… each holds it for 2 ms: idle time to redis-py's `Lock`", to(REDIS, _HANDED_ON), "≤ 0.1"),
    ("16 threads in 4 processes, 10 keys: rate to Curator", to(CURATOR, works.KEYS_10), "≥ 1"),
    ("… 100 keys: rate to Curator", to(CURATOR, works.KEYS_100), "≥ 1"),
    (
        "three servers, uncontended: time to Curator",
        to(CURATOR, _ENSEMBLE),
        "≤ 0.75",
        "the servers take most of it",
    ),
    (
        "1,000 waiters: time of an acquire to that with 10 waiters",
        _CROWDS,
        "≤ 4",
        "each newcomer lists them all",
    ),
    ("on Redis, uncontended: time to redis-py's `Lock`", on_redis(REDIS, _ALONE), "≤ 1", _PROMISES),
    ("… 8 processes: rate to python-redis-lock", on_redis(NOTIFIED, _PROCESSES), "≥ 2", _PROMISES),
    ("… 8 threads: rate to python-redis-lock", on_redis(NOTIFIED, _THREADS), "≥ 3", _TURNS),
    (
        "… each holds it for 2 ms: idle time to python-redis-lock",
        on_redis(NOTIFIED, _HANDED_ON),
        "≤ 1",
        _PROMISES,
    ),
    ("all works: Jain's index over the contenders, at its lowest", fairness, "≥ 0.99"),
    ("… overlaps", overlaps, "≤ 0"),
    ("`import distlock`: time to `import kazoo.client, django`", _IMPORTS, "≤ 1.3"),
)
