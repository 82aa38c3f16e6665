"""What came of flash sales: the figures, one table, and two sentences."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.text import get_text_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from example_project.shop.nemesis import Kill, Pause


def title(strategy: str, *, killed: bool, stopped: bool) -> str:
    return (
        strategy + (", worker killed" if killed else "") + (", worker stopped" if stopped else "")
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """One run. Seconds; what was sold is counted in the database, not from the answers."""

    strategy: str
    stock: int
    buyers: int
    processes: int
    sold: int
    left: int
    oversold: int
    refused: int
    errors: int
    unavailable: int
    reconnected: int
    stale: int
    lost: int
    charged: int
    p50: float
    p95: float
    max: float
    seconds: float
    sales_per_second: float
    kills: list[Kill]
    pauses: list[Pause]

    @property
    def title(self) -> str:
        return title(self.strategy, killed=bool(self.kills), stopped=bool(self.pauses))

    @property
    def exact(self) -> bool:
        """Whether every piece was sold once, to one buyer who paid once."""
        return (
            self.sold == min(self.stock, self.buyers)
            and self.sold + self.left == self.stock
            and self.sold == self.charged
        )


# At most 80 columns.
ROW = "{:<25} {:>4} {:>8} {:>7} {:>5} {:>6} {:>5} {:>5} {:>7}"
HEADER = ROW.format(
    *("strategy", "sold", "oversold", "refused", "stale", "errors", "p50 s", "p95 s", "sales/s")
)


def row_of(report: Report) -> str:
    return ROW.format(
        report.title,
        report.sold,
        report.oversold,
        report.refused,
        report.stale,
        report.errors,
        f"{report.p50:.2f}",
        f"{report.p95:.2f}",
        f"{report.sales_per_second:.1f}",
    )


def table(reports: list[Report], styled: Callable[[str, Report], str]) -> str:
    """Return a line for each report, below the header, each as `styled` makes it."""
    return "\n".join([HEADER, *(styled(row_of(report), report) for report in reports)])


def summary(reports: list[Report]) -> str:
    """Say what happened: one sentence on the sales that went wrong, and one on the exact ones."""
    sentences = []
    exact = [report for report in reports if report.exact]
    if wrong := [report for report in reports if not report.exact]:
        accounts = [
            f"{one.title} sold {one.sold} pieces of {one.stock}, and {one.oversold} buyers paid "
            "for nothing"
            for one in wrong
        ]
        sentences.append(f"{'; '.join(accounts)}.")
    if exact:
        names = get_text_list(list(dict.fromkeys(report.strategy for report in exact)), "and")
        fates = [
            *(["killed"] if any(report.kills for report in exact) else []),
            *(["stopped"] if any(report.pauses for report in exact) else []),
        ]
        also = f", also when a worker was {' or '.join(fates)} in the middle" if fates else ""
        sentences.append(
            f"{names} sold {exact[0].sold} pieces of {exact[0].stock}, each to a buyer who paid "
            f"once{also}."
        )
    return "\n".join(textwrap.fill(sentence, 80) for sentence in sentences)


def account_of(pause: Pause, report: Report) -> str:
    """What came of a worker that stood still, and what that proves."""
    stopped = f"stood still for {pause.seconds} s between its read and its write"
    if not pause.held:
        return f"{stopped}; nobody else bought meanwhile"
    stopped += " while somebody else bought"
    if report.stale:
        return f"{stopped}; the database refused its write"
    if report.exact:
        return (
            f"{stopped}; hold.check() stopped it.\n  A lock alone cannot promise that: stopped "
            "after its last check it would have written. zk_fenced is refused there, too."
        )
    return (
        f"{stopped}; then it wrote all the same.\n  This is what a lock alone cannot prevent, and "
        "zk_fenced can."
    )


def percentile(ordered: list[float], percent: int) -> float:
    """The nearest-rank percentile of sorted values."""
    return round(ordered[max(0, -(-len(ordered) * percent // 100) - 1)], 3)
