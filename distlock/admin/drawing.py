"""Draws a deadlock as an SVG: its owners on a ring, each with an arrow to the one it waits for."""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple

from distlock.text import printable

if TYPE_CHECKING:
    from distlock.inspection.wait_graph import Cycle, Link

#: The most owners in a drawing. The page describes longer deadlocks in words only.
MOST: Final = 12
#: The width of a box in the template, in pixels of the unscaled drawing.
WIDTH: Final = 200


class Wait(NamedTuple):
    """The box of a waiter, with its middle at `x` and `y`, and its arrow to the next one.

    :ivar label: its work, as far as known, and `place` its process, both cut to fit
    :ivar d: the attribute of the ``<path>``: half of the arrow, the head, and the other half
    :ivar lock: the key it waits for, cut to fit in `lock_label`
    """

    label: str
    place: str
    title: str
    x: int
    y: int
    d: str
    lock: str
    lock_label: str
    lock_x: int
    lock_y: int


class Drawing(NamedTuple):
    """A drawing for ``distlock/deadlock.html``: a square with 0, 0 in its middle."""

    half: int
    size: int
    waits: list[Wait]


def draw(cycle: Cycle) -> Drawing | None:
    """Return the drawing of a deadlock, None if it has one owner or too many."""
    count = len(cycle.links)
    if not 2 <= count <= MOST:
        return None
    # From the first who came on, so that the drawing stays the same.
    start = min(range(count), key=lambda at: cycle.links[at].waiter.participant.token)
    links = [*cycle.links[start:], *cycle.links[:start]]
    radius = 60 * count
    waits = [_wait(link, radius, at / count, 1 / count) for at, link in enumerate(links)]
    half = radius + WIDTH // 2 + 12
    return Drawing(half=half, size=2 * half, waits=waits)


def _wait(link: Link, radius: int, turn: float, step: float) -> Wait:
    """Return the wait at a place of the ring, in turns from the top."""
    (x, y), middle, after = (_at(radius, turn + part * step) for part in (0, 0.5, 1))
    arc = f"A{radius} {radius} 0 0 1"
    who = link.waiter.participant
    place = f"{who.host}:{who.pid} {who.worker}".strip() if who.host else link.waiter.owner
    lock = str(link.lock)
    return Wait(
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
