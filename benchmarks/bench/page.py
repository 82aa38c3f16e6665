"""The figures in Markdown."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import TYPE_CHECKING

from benchmarks.bench import works
from benchmarks.bench.figures import Spread, ratio
from benchmarks.bench.targets import judge
from benchmarks.curator import version as curator_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.bench.run import Results
    from benchmarks.bench.targets import Verdict
    from benchmarks.bench.works import Work

_PACKAGES = ("kazoo", "redis", "python-redis-lock", "django-pglock", "psycopg", "Django")
_HEADS = {"ms": "ms", "per second": "per second", "idle ms": "idle ms"}


def ratios(results: Results) -> str:
    """Return what the page begins with: the targets, and where it was measured."""
    return f"{reach(judge(results))}\n\n{machine(results)}\n"


def text(results: Results) -> str:
    """Return all other tables."""
    parts = []
    for work in chain.from_iterable(works.WORKS.values()):
        if work.name in results.series:
            parts += [f"### {work.title}", table(results, work)]
    if results.reentry:
        parts += ["### Reentry, and the decorator", reentry(results)]
    if results.trips:
        parts += ["### Round trips waited for", trips(results)]
    if results.crowds:
        parts += ["### Many waiters of one key", crowds(results)]
    for name, why in results.missing.items():
        parts.append(f"Not measured: {name}. {why}")
    parts += [f"Failed: {each}" for each in results.failed]
    return "\n\n".join(parts) + "\n"


def machine(results: Results) -> str:
    """Say where it was measured."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    if curator := curator_version():
        versions.append(f"Curator {curator}")
    before, after = results.load
    return (
        f"{results.rounds} rounds, {results.seconds:g} s for each contender and work, on "
        f"{cores} cores with {memory:.0f} GB, in {results.took:.0f} s. "
        f"Load {before:.1f} at the start, {after:.1f} at the end"
        f"{'; the machine had other work, too' if before > cores / 4 else ''}. "
        f"{', '.join(versions)}."
    )


def reach(verdicts: Iterable[Verdict]) -> str:
    """Return the table of the targets."""
    rows = [("work", "measured", "quartiles", "target", "")]
    for each in verdicts:
        if each.measured is None:
            rows.append((each.what, "-", "-", each.bound, "not measured"))
        else:
            figures = number(each.measured.median), _quartiles(each.measured)
            missed = f"missed: {each.why}" if each.why else "missed"
            met = {True: "met", False: missed, None: ""}[each.met]
            rows.append((each.what, *figures, each.bound, met))
    return markdown(rows)


def table(results: Results, work: Work) -> str:
    """Return the table of one work; the ratios are to distlock."""
    of = results.series[work.name]
    head = ["", _HEADS[work.figure], "quartiles", "to distlock", "quartiles"]
    requests = any(series.requests for series in of.values())
    if requests:
        head.append("requests each")
    head.append("processor ms")
    if work.line:
        head.append("Jain's index")
    rows: list[Sequence[str]] = [[*head, "overlaps"]]
    ours = of.get(works.DISTLOCK.name)
    for contender in work.contenders:
        series = of.get(contender.name)
        if series is None:
            continue
        spread = Spread.of(series.figures)
        row = [contender.name, number(spread.median), _quartiles(spread)]
        if ours is None or series is ours:
            row += ["1", ""]
        else:
            against = ratio(series.figures, ours.figures)
            row += [number(against.median), _quartiles(against)]
        if requests:
            row.append(f"{Spread.of(series.requests).median:.1f}" if series.requests else "-")
        row.append(number(Spread.of(series.processor).median))
        if work.line:
            row.append(f"{Spread.of(series.fairness).median:.3f}" if series.fairness else "-")
        witnessed = contender.witnessed and not work.refused
        rows.append([*row, str(series.overlaps) if witnessed else "-"])
    return markdown(rows)


def reentry(results: Results) -> str:
    """Return the table of the calls that send nothing."""
    rows = [("", "ns", "quartiles", "to `RLock`", "quartiles")]
    for kind, nanos in results.reentry.items():
        spread, against = Spread.of(nanos), ratio(nanos, results.reentry["RLock"])
        rows.append(
            (
                kind,
                number(spread.median),
                _quartiles(spread),
                number(against.median),
                _quartiles(against),
            )
        )
    return markdown(rows)


def trips(results: Results) -> str:
    """Return the table of the round trips."""
    rows: list[Sequence[str]] = [("", "acquire and release", "refused attempt")]
    for name, of in results.trips.items():
        figures = (of.get(work.name) for work in (works.UNCONTENDED, works.REFUSED))
        rows.append((name, *("-" if each is None else f"{each:.1f}" for each in figures)))
    return markdown(rows)


def crowds(results: Results) -> str:
    """Return the table of the waiters."""
    rows: list[Sequence[str]] = [("waiters", "ms per acquire", "quartiles")]
    for waiters, milliseconds in results.crowds.items():
        spread = Spread.of(milliseconds)
        rows.append((f"{waiters:,}", number(spread.median), _quartiles(spread)))
    return markdown(rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first row is its head; all but the first column are figures."""
    head, *body = rows
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Write three digits that count, and no more."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 or not value else f"{value:.3f}"


def _quartiles(spread: Spread) -> str:
    """Write the quartiles, and nothing where there was one figure only."""
    if spread.low == spread.high:
        return ""
    return f"{number(spread.low)} to {number(spread.high)}"
