"""The places of this process that stand in one line, by the numbers of their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .handover import MutexPlace


class Neighbours:
    """Who of this process stands where, in all lines of one session.

    The server numbers the nodes of a line without gaps, also over those that were deleted. So
    nobody stands between two numbers that follow each other, as long as the line was not removed
    and begun anew in between; and that cannot be while a node of ours is in it. A place is here
    from the answer to its create until the answer to its delete, and the answers of one connection
    come in order: whoever finds the number before its own here was created while that one stood.
    With the connection the order is lost, and all is forgotten.

    Changed on the connection thread, but for who came last.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], MutexPlace] = {}
        #: Who of us came last to a line, or is on the way there.
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
        self._places.pop((place.path, number), None)
        self.leave(place)

    def at(self, path: str, number: int) -> MutexPlace | None:
        """Return whose node has this number in the line under `path`, None for no one of ours."""
        return self._places.get((path, number))

    def part(self) -> None:
        """Forget all, and let them find out by themselves where they stand."""
        places = list(self._places.values())
        self._places.clear()
        self._last.clear()
        for place in places:
            place.part()
