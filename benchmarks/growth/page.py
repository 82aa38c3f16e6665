"""The tables and the plot of the growth."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.bench.page import markdown, number
from benchmarks.growth.model import CONTENDED, NODES, Costs, Fleet

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.growth.measure import Keys, Line, Sessions

#: What is reckoned with: some shops, and the one of 10,000 processes.
FLEETS = {
    "a small shop": Fleet(processes=20, busy=5, acquires=50, contended=0.2),
    "a large one": Fleet(processes=500, busy=100, acquires=1000, contended=0.2),
    "10,000 processes, mostly idle": Fleet(processes=10_000, busy=500, acquires=1000),
    "10,000 processes, 1 acquire each in 2 s": Fleet(
        processes=10_000, busy=2000, acquires=5000, contended=0.1
    ),
    "the same, sessions of 30 s": Fleet(
        processes=10_000, busy=2000, acquires=5000, contended=0.1, session_timeout=30
    ),
}
#: From how many on the memory of one can be told from the server's own.
ENOUGH = 100
_MILLION = 1e6


@dataclass
class Growth:
    """All that was measured."""

    writes: float = 0.0
    lines: list[Line] = field(default_factory=list)
    keys: list[Keys] = field(default_factory=list)
    sessions: list[Sessions] = field(default_factory=list)

    @property
    def costs(self) -> Costs | None:
        """What one of each costs, as far as enough of them were measured."""
        locks = [each.memory for each in self.keys if each.keys >= ENOUGH]
        sessions = [each.memory for each in self.sessions if each.sessions >= ENOUGH]
        if not (locks and sessions and self.writes):
            return None
        return Costs(statistics.median(sessions), statistics.median(locks), self.writes)


def text(growth: Growth) -> str:
    """Return all tables."""
    where = (
        f"On {os.cpu_count()} cores, which the server shares with all its clients; load at the "
        f"end {os.getloadavg()[0]:.1f}. One client, which sends without waiting, creates and "
        f"deletes {growth.writes:,.0f} nodes per second."
    )
    parts = [
        where,
        "### Waiters of one lock",
        _lines(growth.lines),
        "### Keys held by one session",
        _keys(growth.keys),
        "### Sessions",
        _sessions(growth.sessions),
    ]
    if costs := growth.costs:
        parts += ["### The model's fleets", _fleets(costs)]
    return "\n\n".join(parts) + "\n"


def _lines(lines: list[Line]) -> str:
    rows = [("waiters", "ms per acquire", "requests", "model")]
    for each in lines:
        figures = number(each.milliseconds), f"{each.requests:.1f}", str(CONTENDED)
        rows.append((f"{each.waiters:,}", *figures))
    return markdown(rows)


def _keys(keys: list[Keys]) -> str:
    rows = [
        (
            "keys",
            "ms to acquire one",
            "ms to release one",
            "nodes",
            "model",
            "watches",
            "memory each",
            "nodes left",
            "all gone after",
        )
    ]
    rows += [
        (
            f"{each.keys:,}",
            number(each.taken),
            number(each.released),
            f"{each.nodes:,}",
            f"{NODES * each.keys + 1:,}",
            f"{each.watches:,}",
            _bytes(each.memory, each.keys),
            str(max(each.left, 0)),
            f"{each.cleared:.1f} s",
        )
        for each in keys
    ]
    return markdown(rows)


def _sessions(sessions: list[Sessions]) -> str:
    rows = [
        (
            "sessions",
            "ms to open one",
            "memory each",
            "requests per second, idle",
            "model",
            "each holds a lock",
            "model",
            "watches",
        )
    ]
    for each in sessions:
        idle, holding = (
            Fleet(each.sessions, busy, acquires=0).signs_of_life for busy in (0, each.sessions)
        )
        rows.append(
            (
                f"{each.sessions:,}",
                number(each.opened),
                _bytes(each.memory, each.sessions),
                f"{each.idle:.1f}",
                f"{idle:.1f}",
                f"{each.holding:.1f}",
                f"{holding:.1f}",
                f"{each.watches:,}",
            )
        )
    return markdown(rows)


def _fleets(costs: Costs) -> str:
    rows = [
        (
            "",
            "processes",
            "busy at a time",
            "acquires per second",
            "heartbeats per second",
            "requests per second",
            "writes per second",
            "nodes",
            "watches",
            "memory",
            "ensembles",
        )
    ]
    rows += [
        (
            name,
            f"{fleet.processes:,}",
            f"{fleet.busy:,}",
            f"{fleet.acquires:,.0f}",
            f"{fleet.signs_of_life:,.0f}",
            f"{fleet.requests:,.0f}",
            f"{fleet.writes:,.0f}",
            f"{fleet.nodes:,}",
            f"{fleet.watches:,}",
            f"{fleet.memory(costs) / _MILLION:,.1f} MB",
            str(fleet.ensembles(costs)),
        )
        for name, fleet in FLEETS.items()
    ]
    return markdown(rows)


def _bytes(each: float, many: int) -> str:
    return f"{each / 1000:.1f} kB" if many >= ENOUGH else "-"


def draw(growth: Growth, path: Path) -> None:
    """Write a picture with a panel for each kind of growth."""
    import matplotlib as mpl  # noqa: PLC0415 - of the extra [bench], and slow to import

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6))
    lines = {each.waiters: each.milliseconds for each in growth.lines}
    _curve(axes[0], "Waiters of one lock", lines, x_label="waiting")
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("ms per acquire")
    keys = {each.keys: each.taken for each in growth.keys}
    _curve(axes[1], "Keys held by one session", keys, x_label="keys")
    axes[1].set_ylim(bottom=0)
    axes[1].set_ylabel("ms to acquire one")
    for kind in ("idle", "holding"):
        rates = {each.sessions: getattr(each, kind) for each in growth.sessions}
        _curve(axes[2], "Sessions", rates, x_label="sessions", label=kind)
    axes[2].set_yscale("log")
    axes[2].set_ylabel("heartbeats per second")
    axes[2].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _curve(
    axis: Any, title: str, points: dict[int, float], *, x_label: str, label: str = ""
) -> None:
    axis.plot(list(points), list(points.values()), marker="o", label=label)
    axis.set_xscale("log")
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(x_label, fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
