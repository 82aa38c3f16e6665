"""A plot with two logarithmic axes as SVG, which takes no library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 190, 40, 50
# Colours that the colour-blind can tell apart (Okabe and Ito); they read on light and on dark.
COLOURS = ("#0072b2", "#d55e00", "#56b4e9", "#e69f00")


def log_log(title: str, curves: Mapping[str, Mapping[int, int]], *, x_label: str) -> str:
    """Return an SVG with one line for each of `curves`: name → x → y, all of them at least 1."""
    decades_x = _decades(x for curve in curves.values() for x in curve)
    decades_y = _decades(y for curve in curves.values() for y in curve.values())

    def x_of(x: float) -> float:
        return LEFT + math.log10(x) / decades_x * (WIDTH - LEFT - RIGHT)

    def y_of(y: float) -> float:
        return HEIGHT - BOTTOM - math.log10(y) / decades_y * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        '<g font-family="sans-serif" font-size="12" fill="#808080">',
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="{TOP / 2}" font-size="15">{escape(title)}</text>',
    ]
    grid = 'stroke="#808080" stroke-opacity="0.3" d="'
    for x in (10**power for power in range(decades_x + 1)):
        parts.append(f'<path {grid}M{x_of(x):.0f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(_text(x_of(x), HEIGHT - BOTTOM + 18, f"{x:,}", "middle"))
    for y in (10**power for power in range(decades_y + 1)):
        parts.append(f'<path {grid}M{LEFT} {y_of(y):.0f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 8, y_of(y) + 4, f"{y:,}", "end"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, "middle"))
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        points = [(x_of(x), y_of(y)) for x, y in curve.items()]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{line}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<g fill="{colour}">{_text(x + 12, y + 4, name)}</g>')
    return "\n".join([*parts, "</g></svg>", ""])


def _decades(values: Iterable[int]) -> int:
    return max(math.ceil(math.log10(max(values))), 1)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'
