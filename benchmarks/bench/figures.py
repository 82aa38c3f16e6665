"""Figures of a run, and what is made of them: medians, quartiles, ratios, fairness."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from benchmarks.bench.pool import Done
    from benchmarks.bench.works import Work


#: How often each contender has to get the lock for its share to say something.
ENOUGH = 10


class Spread(NamedTuple):
    """A median and the two quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = sorted(values)
        if len(found) == 1:
            return cls(*found * 3)
        low, _, high = statistics.quantiles(found, n=4, method="inclusive")
        return cls(statistics.median(found), low, high)


def jain(shares: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 where all have the same, 1/n where one has all.

    Source: Jain, Chiu and Hawe, "A Quantitative Measure of Fairness", 1984.
    """
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else 0.0


@dataclass
class Series:
    """What one contender has done at one work, round by round.

    :ivar figures: what is shown of the work
    :ivar requests, processor: of each time that it took the lock: how many, and milliseconds
    """

    figures: list[float] = field(default_factory=list)
    fairness: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    overlaps: int = 0

    def add(self, work: Work, done: Done, seconds: float) -> None:
        """Count one round in.

        :param seconds: how long the round was
        """
        self.figures.append(figure(work, done, seconds))
        self.overlaps += done.overlaps
        self.processor.append(1000 * done.processor / done.entries)
        if work.line and done.entries >= ENOUGH * len(done.in_time):
            self.fairness.append(jain(done.in_time))
        if done.requests is not None:
            self.requests.append(done.requests / done.entries)


def figure(work: Work, done: Done, seconds: float) -> float:
    """Return what is shown of a work (`Work.figure`)."""
    if work.figure == "idle ms":
        return 1000 * statistics.mean(done.idle)
    if work.figure == "ms":
        return 1000 * statistics.mean(done.cycles)
    return sum(done.in_time) / seconds


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Compare each round with the same round: a busy moment hits neighbours alike."""
    return Spread.of(one / other for one, other in zip(mine, theirs, strict=True))
