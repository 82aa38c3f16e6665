"""Draws a deadlock as an SVG: its owners on a ring, each with an arrow to the one it waits for."""

from __future__ import annotations

import math
import unicodedata
from types import SimpleNamespace
from typing import Final

from distlock.inspection.wait_graph import Cycle, Link
from distlock.text import printable

#: The most owners in a drawing. The page describes longer deadlocks in words only.
MOST: Final = 12
#: The width of a box in the template, in pixels of the unscaled drawing.
WIDTH: Final = 200


def draw(cycle: Cycle) -> SimpleNamespace | None:
    """Return what ``distlock/deadlock.html`` draws, None for one owner or too many."""
    count = len(cycle.links)
    if not 2 <= count <= MOST:
        return None
    # From the first who came on, so that the drawing stays the same.
    start = min(range(count), key=lambda at: cycle.links[at].waiter.participant.token)
    links = [*cycle.links[start:], *cycle.links[:start]]
    radius = 60 * count
    waits = [_wait(link, radius, at / count, 1 / count) for at, link in enumerate(links)]
    half = radius + WIDTH // 2 + 12
    return SimpleNamespace(half=half, size=2 * half, waits=waits)


def _wait(link: Link, radius: int, turn: float, step: float) -> SimpleNamespace:
    """Return the wait at a place of the ring, in turns from the top: its box, and its arrow."""
    (x, y), middle, after = (_at(radius, turn + part * step) for part in (0, 0.5, 1))
    arc = f"A{radius} {radius} 0 0 1"
    who = link.waiter.participant
    place = f"{who.host}:{who.pid} {who.worker}".strip() if who.host else link.waiter.owner
    lock = str(link.lock)
    return SimpleNamespace(
        label=_cut(who.label or place, 25),
        place=_cut(place, 25) if who.label else "",
        title=str(link.waiter),
        x=x,
        y=y,
        d=f"M{x} {y}{arc} {middle[0]} {middle[1]}{arc} {after[0]} {after[1]}",
        lock=lock,
        lock_label=_cut(lock, 19),
        lock_x=middle[0],
        lock_y=middle[1] - 12,
    )


def _at(radius: int, turn: float) -> tuple[int, int]:
    angle = math.tau * turn
    return round(radius * math.sin(angle)), round(-radius * math.cos(angle))


def _cut(text: str, letters: int) -> str:
    """Return a text that fits; Chinese, Japanese and Korean letters are wide."""
    wide = any(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return printable(text, letters // 2 if wide else letters)
