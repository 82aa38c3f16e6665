"""Finds the contenders of this process in one queue, by the numbers of their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .handoff import MutexPlace


class LocalContenders:
    """The places of this process's contenders, in all queues of one session.

    The server numbers the nodes of a line without gaps, also over those that were deleted. So
    nobody is between two numbers that follow each other in one line. An operator may remove a line,
    though, and the next one under its path counts from 0 again: a number alone identifies nobody,
    and `MutexPlace` looks at the node's name, or at how old the line is.

    A place is here from the answer to its create until the answer to its delete, and the answers of
    one connection come in order. With the connection the order is lost, and all is forgotten.

    Changed on the connection thread, but for who came last.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], MutexPlace] = {}
        #: The last of our contenders in a queue, or on its way there.
        self._last: dict[str, MutexPlace] = {}

    def follow(self, place: MutexPlace) -> bool:
        """`place` asks for a node now; return whether another of us stands there, or is to before.

        From any thread. In a race it may be wrong: it says what to ask, and not whose turn it is.
        """
        last = self._last.get(place.path)
        self._last[place.path] = place
        return last is not None and last is not place

    def leave(self, place: MutexPlace) -> None:
        """Nobody follows `place` any more; from any thread."""
        if self._last.get(place.path) is place:
            self._last.pop(place.path, None)

    def enter(self, place: MutexPlace, number: int) -> None:
        """The node of `place` has this number."""
        self._places[place.path, number] = place

    def remove(self, place: MutexPlace, number: int) -> None:
        """The node of `place` with this number is gone."""
        if self._places.get((place.path, number)) is place:  # or one of the next line
            del self._places[place.path, number]
        self.leave(place)

    def at(self, path: str, number: int) -> MutexPlace | None:
        """Return who of us came last with this number to a line under `path`, None for no one."""
        return self._places.get((path, number))

    def part(self) -> None:
        """Forget all, and let them find out by themselves where they stand."""
        places = list(self._places.values())
        self._places.clear()
        self._last.clear()
        for place in places:
            place.part()
