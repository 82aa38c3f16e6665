"""The figures as PNG, by matplotlib (of the extra ``[bench]``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import works
from benchmarks.bench.figures import Spread

if TYPE_CHECKING:
    from benchmarks.bench.run import Results
    from benchmarks.bench.works import Work

# Colours that the colour-blind can tell apart (Okabe and Ito): by where the lock is kept.
_COLOURS = {"ZooKeeper": "#56b4e9", "Redis": "#d55e00", "PostgreSQL": "#009e73"}
_OURS = "#0072b2"
_PANELS = (
    works.LINK_PROCESSES,
    works.LONG_LINK_PROCESSES,
    works.LINK,
    works.LINK_THREADS,
    works.UNCONTENDED,
    works.HANDED_ON,
    works.THREADS,
    works.PROCESSES,
)
_UNITS = {
    "ms": "milliseconds (less is better)",
    "idle ms": "idle milliseconds at a hand-off (less is better)",
    "per second": "acquisitions per second (more is better)",
}


def draw(results: Results, path: Path) -> None:
    """Write one picture with a panel for each work."""
    import matplotlib as mpl  # noqa: PLC0415 - of the extra [bench], and slow to import

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    panels = [work for work in _PANELS if work.name in results.series]
    figure, axes = plt.subplots((len(panels) + 1) // 2, 2, figsize=(11, 1.7 * len(panels)))
    for axis, work in zip(axes.flat, panels, strict=False):
        _bars(axis, results, work)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axis: Any, results: Results, work: Work) -> None:
    of = results.series[work.name]
    shown = [each for each in reversed(work.contenders) if each.name in of]
    spreads = [Spread.of(of[each.name].figures) for each in shown]
    medians = [spread.median for spread in spreads]
    errors = [
        [spread.median - spread.low for spread in spreads],
        [spread.high - spread.median for spread in spreads],
    ]
    colours = [_OURS if each.name.startswith("distlock") else _COLOURS[each.kept] for each in shown]
    axis.barh([each.name for each in shown], medians, xerr=errors, color=colours)
    if max(medians) > 50 * min(medians):
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(lambda *_: "")
    axis.set_title(work.title, fontsize=10)
    axis.set_xlabel(_UNITS[work.figure], fontsize=8)
    axis.tick_params(labelsize=8)
