"""Summarises a run in one line."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from . import checker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .checker import Violation
    from .timeline import Timeline

#: The gates in the order of the summary.
NAMES = (
    "stale acts",
    "overlaps",
    "crowds",
    "parts",
    "lost updates",
    "fence violations",
    "late losses",
    "needless losses",
    "abandoned sessions",
    "refusals",
    "absences",
    "believing children",
    "overruns",
    "slow recoveries",
    "nodes left",
    "watches left",
    "stuck processes",
    "errors",
)


def summary(timeline: Timeline, violations: Iterable[Violation]) -> str:
    """Return the summary line of a run."""
    run = timeline.run
    counts = Counter(violation.gate for violation in violations)
    hit = sum(
        any(hold.pid == fault.pid and hold.holds_at(fault.at) for hold in timeline.holds)
        for fault in timeline.faults
    )
    unavoidable = len(checker.acts(timeline)[1])
    naive = checker.naive_losses(timeline)
    margins = [margin for _, margin in checker.margins(timeline)]
    facts = [
        f"{run['recipe']}, seed {run['seed']}, {run['seconds']:g} s",
        f"{run['processes']} processes, {run['nodes']} servers",
        f"{len(timeline.faults)} faults ({hit} on a holder), {len(timeline.holds)} holds",
        ", ".join(f"{name} {counts[name]}" for name in NAMES),
        f"unavoidable acts {unavoidable} (naive register lost {naive})",
        f"recovery at most {_most(s for _, _, s in checker.recoveries(timeline))}",
        f"overrun at most {_most(s for _, s, _ in checker.overrun_times(timeline))}",
        f"loss said at least {min(margins):.2f} s before the rival" if margins else "no loss timed",
        "passed" if not counts else "FAILED",
    ]
    return "; ".join(facts)


def _most(seconds: Iterable[float]) -> str:
    return f"{max(seconds, default=0.0):.2f} s"
