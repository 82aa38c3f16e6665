"""Draws a deadlock as an SVG: its owners on a ring, and an arrow for each wait."""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple

from distlock.text import printable

if TYPE_CHECKING:
    from distlock.inspection.wait_graph import Cycle, Link

#: The most owners in a drawing. The page describes longer deadlocks in words only.
MOST: Final = 12
# Sizes are pixels of the unscaled drawing: of a box (as in the template), between the middles of
# two neighbours, from the line between them to the bulging arrow, and around everything.
WIDTH: Final = 200
HEIGHT: Final = 46
_APART: Final = 370
_BULGE: Final = 46
_MARGIN: Final = 12
#: The letters that fit into a box, and on an arrow.
_BOX_LETTERS: Final = 25
_ARROW_LETTERS: Final = 19


class Wait(NamedTuple):
    """The box of a waiter, and its arrow to the next one.

    :ivar label: its work, as far as known, and `place` its process, both cut to fit
    :ivar title: all known facts
    :ivar x: the middle of the box, as `y`
    :ivar d: the attribute of the ``<path>``
    :ivar lock: the key it waits for, cut to fit in `lock_label`, with its middle at `lock_x`
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
    """A drawing for ``distlock/deadlock.html``."""

    width: int
    height: int
    waits: list[Wait]

    @property
    def view(self) -> str:
        """The ``viewBox``, with the middle of the ring at 0, 0."""
        return f"{-self.width // 2} {-self.height // 2} {self.width} {self.height}"


def draw(cycle: Cycle) -> Drawing | None:
    """Return the drawing of a deadlock, None if it has one owner or too many."""
    # From the first who came on, so that the drawing stays the same.
    start = min(range(len(cycle.links)), key=lambda at: cycle.links[at].waiter.participant.token)
    links = [*cycle.links[start:], *cycle.links[:start]]
    if not 2 <= len(links) <= MOST:
        return None
    step = math.tau / len(links)
    radius = _APART / 2 / math.sin(step / 2)
    first = math.pi if len(links) == 2 else -math.pi / 2  # two side by side, or one on top
    high = _BULGE if len(links) == 2 else radius
    return Drawing(
        width=2 * round(radius + WIDTH / 2 + _MARGIN),
        height=2 * round(high + HEIGHT / 2 + _MARGIN),
        waits=[_wait(link, radius, first + at * step, step) for at, link in enumerate(links)],
    )


def _wait(link: Link, radius: float, angle: float, step: float) -> Wait:
    middle = radius * math.cos(step / 2)  # of the line to the next box
    bend = _at(middle + 2 * _BULGE, angle + step / 2)
    here, there = _at(radius, angle), _at(radius, angle + step)
    (x1, y1), (x2, y2) = _border(here, bend), _border(there, bend)
    lock_x, lock_y = _at(middle + _BULGE, angle + step / 2)
    who = link.waiter.participant
    place = f"{who.host}:{who.pid} {who.worker}".strip() if who.host else link.waiter.owner
    lock = str(link.lock)
    return Wait(
        label=_cut(who.label or place, _BOX_LETTERS),
        place=_cut(place, _BOX_LETTERS) if who.label else "",
        title=str(link.waiter),
        x=round(here[0]),
        y=round(here[1]),
        d=f"M{x1} {y1}Q{bend[0]:.0f} {bend[1]:.0f} {x2} {y2}",
        lock=lock,
        lock_label=_cut(lock, _ARROW_LETTERS),
        lock_x=round(lock_x),
        lock_y=round(lock_y) + 4,
    )


def _at(radius: float, angle: float) -> tuple[float, float]:
    return radius * math.cos(angle), radius * math.sin(angle)


def _border(box: tuple[float, float], toward: tuple[float, float]) -> tuple[int, int]:
    """Return the point where a line from the middle of a box leaves it."""
    across, down = toward[0] - box[0], toward[1] - box[1]
    part = 1 / max(abs(across) * 2 / WIDTH, abs(down) * 2 / HEIGHT, 1)
    return round(box[0] + across * part), round(box[1] + down * part)


def _cut(text: str, letters: int) -> str:
    """Return a text that fits: without its middle, since keys and places differ at their ends."""
    text = printable(text)
    if any(unicodedata.east_asian_width(letter) in "WF" for letter in text):
        letters //= 2  # Chinese, Japanese and Korean letters are wide
    if len(text) <= letters:
        return text
    return f"{text[: letters // 2]}\N{HORIZONTAL ELLIPSIS}{text[-(letters // 2) :]}"
