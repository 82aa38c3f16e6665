"""Breadth first through every world that can be reached, to the shortest way to a violation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.kit.helpers import without_garbage_collection

if TYPE_CHECKING:
    from tests.model.machine import Machine
    from tests.model.world import World

#: How one got to a world: the way to the one before it, and the last step.
Way = tuple["Way", str] | None


class Exploration(NamedTuple):
    """What was seen."""

    worlds: int
    depth: int
    #: Whether there was nothing further to see; else the depth was reached, or a violation.
    complete: bool
    #: The steps to the first violation, and the violation.
    trace: list[str]


@without_garbage_collection()
def explore(machine: Machine, start: World, depth: int = 1000) -> Exploration:
    """Take every order of steps, at most `depth` of them; stop at the first violation."""
    seen = {start}
    edge: list[tuple[World, Way]] = [(start, None)]
    for level in range(depth):
        further: list[tuple[World, Way]] = []
        for world, way in edge:
            for what, then in machine.steps(world):
                if then in seen:
                    continue
                seen.add(then)
                if wrong := machine.violation(then):
                    return Exploration(len(seen), level + 1, False, [*_steps((way, what)), wrong])
                further.append((then, (way, what)))
        if not further:
            return Exploration(len(seen), level, True, [])
        edge = further
    return Exploration(len(seen), depth, False, [])


def _steps(way: Way) -> list[str]:
    steps = []
    while way is not None:
        way, step = way
        steps.append(step)
    return steps[::-1]
