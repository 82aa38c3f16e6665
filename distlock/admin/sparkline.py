"""Draws numbers as a small line, in an SVG without a script or an inline style."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 240
HEIGHT: Final = 40
#: Room for the thickness of the line.
MARGIN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A line from left to right, the last value at the right; for ``distlock/sparkline.html``.

    :ivar points: the points of the ``<polyline>``
    :ivar area: the points of the ``<polygon>`` below it
    :ivar highest: the value at the top
    :ivar last: the value at the right
    """

    points: str
    area: str
    highest: float
    last: float
    width: int = WIDTH
    height: int = HEIGHT


def sparkline(values: Sequence[float]) -> Sparkline:
    """Return the line of `values`; any value but a finite number above 0 counts as 0."""
    shown = [value if math.isfinite(value) and value > 0 else 0 for value in values] or [0]
    highest = max(shown)
    base = HEIGHT - MARGIN
    # Divided before they are multiplied, so that no number is too large.
    heights = [value / highest * (base - MARGIN) if highest else 0.0 for value in shown]
    step = (WIDTH - 2 * MARGIN) / max(len(shown) - 1, 1)
    points = [(MARGIN + place * step, base - height) for place, height in enumerate(heights)]
    if len(points) == 1:  # one value is a level line
        points.append((WIDTH - MARGIN, points[0][1]))
    return Sparkline(
        points=_text(points),
        area=_text([(points[0][0], base), *points, (points[-1][0], base)]),
        highest=highest,
        last=shown[-1],
    )


def _text(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
