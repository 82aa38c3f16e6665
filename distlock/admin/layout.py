"""Places the owners of a drawing: in columns, and those of a deadlock in a circle.

A waiter is to the left of the holder. A circle has one place in that order, like one owner. So
graphs of this size are readable, without a dependency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Sizes are pixels of the unscaled drawing.
NODE_WIDTH: Final = 200.0
NODE_HEIGHT: Final = 46.0
#: The gap between two columns, with room for a lock's name, and between two rows.
GAP_X: Final = 160.0
GAP_Y: Final = 20.0
#: The room above and below a circle, for bulging arrows, and between its rows, for lock names.
ROOM: Final = 46.0

Point: TypeAlias = tuple[float, float]
#: A waiter and a holder.
Pair: TypeAlias = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Group:
    """One owner, or a circle of owners, with one place in the order."""

    places: Mapping[str, Point]
    width: float = NODE_WIDTH
    height: float = NODE_HEIGHT
    x: float = 0.0
    y: float = 0.0
    #: The groups to the left and to the right of it.
    before: list[_Group] = field(default_factory=list)
    after: list[_Group] = field(default_factory=list)


def lay_out(
    owners: Sequence[str], rings: Iterable[Sequence[str]], pairs: Iterable[Pair]
) -> dict[str, Point]:
    """Return the middle of each owner's box. No two boxes overlap.

    :param owners: in their order from top to bottom, as far as there is a choice
    :param rings: the owners of each circle, in the order of its arrows; no owner is in two
    :param pairs: the arrows
    """
    group_of: dict[str, _Group] = {}
    for ring in rings:
        group_of.update(dict.fromkeys(ring, _circle(ring)))
    for owner in owners:
        group_of.setdefault(owner, _Group({owner: (0.0, 0.0)}))
    groups = list(dict.fromkeys(group_of.values()))  # the circles first
    for waiter, holder in pairs:
        left, right = group_of[waiter], group_of[holder]
        if left is not right and right not in left.after:
            left.after.append(right)
            right.before.append(left)
    below = 0.0
    for part in _connected(groups):
        below = _arrange(_columns(part), below) + GAP_Y
    return {
        owner: (group.x + x, group.y + y)
        for group in groups
        for owner, (x, y) in group.places.items()
    }


def _circle(ring: Sequence[str]) -> _Group:
    """Place owners on a large enough ellipse, clockwise."""
    if len(ring) == 1:
        return _Group({ring[0]: (0.0, 0.0)}, height=NODE_HEIGHT + 2 * ROOM)
    start = math.pi if len(ring) == 2 else -math.pi / 2
    angles = [start + place * math.tau / len(ring) for place in range(len(ring))]
    wide, high = 120.0, 70.0
    while True:
        points = [(wide * math.cos(angle), high * math.sin(angle)) for angle in angles]
        if all(_apart(*pair) for pair in combinations(points, 2)):
            break
        wide, high = wide * 1.05, high * 1.03
    return _Group(
        dict(zip(ring, points, strict=True)),
        width=2 * max(abs(x) for x, _ in points) + NODE_WIDTH,
        height=2 * max(abs(y) for _, y in points) + NODE_HEIGHT + 2 * ROOM,
    )


def _apart(one: Point, other: Point) -> bool:
    return (
        abs(one[0] - other[0]) >= NODE_WIDTH + GAP_X or abs(one[1] - other[1]) >= NODE_HEIGHT + ROOM
    )


def _connected(groups: Sequence[_Group]) -> list[list[_Group]]:
    """Return the unconnected parts."""
    part_of: dict[_Group, int] = {}
    for number, group in enumerate(groups):
        pending = [group]
        while pending:
            one = pending.pop()
            if one not in part_of:
                part_of[one] = number
                pending += one.before + one.after
    parts: dict[int, list[_Group]] = {}
    for group in groups:
        parts.setdefault(part_of[group], []).append(group)
    return list(parts.values())


def _columns(part: Sequence[_Group]) -> list[list[_Group]]:
    """Return the columns from left to right, each group just before those it waits for."""
    depths: dict[_Group, int] = {}

    def depth(group: _Group) -> int:
        if group not in depths:
            depths[group] = 0  # ignores an arrow back to it
            depths[group] = max((depth(one) + 1 for one in group.after), default=0)
        return depths[group]

    columns: list[list[_Group]] = [[] for _ in range(max(map(depth, part)) + 1)]
    for group in part:
        columns[-1 - depths[group]].append(group)
    return [column for column in columns if column]


def _arrange(columns: Sequence[list[_Group]], top: float) -> float:
    """Place all groups below `top`, and return their lower end."""
    heights = [
        sum(group.height for group in column) + GAP_Y * (len(column) - 1) for column in columns
    ]
    right = 0.0
    # From the right, so that a waiter is beside its holder.
    for column, height in zip(reversed(columns), reversed(heights), strict=True):
        width = max(group.width for group in column)
        column.sort(key=_middle_of_holders)
        y = top + (max(heights) - height) / 2
        for group in column:
            group.x, group.y = right - width / 2, y + group.height / 2
            y += group.height + GAP_Y
        right -= width + GAP_X
    return top + max(heights)


def _middle_of_holders(group: _Group) -> float:
    return sum(one.y for one in group.after) / max(len(group.after), 1)
