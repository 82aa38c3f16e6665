"""The watches on a tree: which sessions hear of which changes.

As in ZooKeeper 3.9, a session may have several kinds of watches on one path. In 3.8, the later one
takes the place of a persistent one (ZOOKEEPER-4466).

Source: ZooKeeper's ``WatchManager`` and ``DataTree``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from .errors import Code, Refused
from .paths import parent

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kind(IntEnum):
    """The kinds of watches, with ZooKeeper's numbers (``Watcher.WatcherType``)."""

    #: Fires once, when the names of the children change or the node goes.
    CHILDREN = 1
    #: Fires once, when the node comes, changes or goes.
    DATA = 2
    #: Stays, and hears of all that the two hear of.
    PERSISTENT = 4
    #: Stays, and hears of the node and of all nodes below it coming, changing and going.
    RECURSIVE = 5


class Event(IntEnum):
    """The kinds of watch events, with ZooKeeper's numbers (``Watcher.Event.EventType``)."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    #: The names of the children have changed.
    CHILD = 4


#: Event → the watches on its path that it ends.
_ENDS: Final = {
    Event.CREATED: (Kind.DATA,),
    Event.CHANGED: (Kind.DATA,),
    Event.DELETED: (Kind.DATA, Kind.CHILDREN),
    Event.CHILD: (Kind.CHILDREN,),
}


class Watches:
    """The watches of all sessions; the node of a watch need not exist."""

    def __init__(self) -> None:
        #: Path and kind → session ids, first come first.
        self._sessions: dict[tuple[str, Kind], dict[int, None]] = {}

    def add(self, path: str, kind: Kind, session_id: int) -> None:
        """Tell a session of the next change, or of all changes."""
        self._sessions.setdefault((path, kind), {})[session_id] = None

    def remove(self, path: str, kinds: Iterable[Kind], session_id: int) -> None:
        """Take watches back.

        :raises Refused: there is none of these kinds
        """
        for kind in self.check(path, kinds, session_id):
            self._remove((path, kind), session_id)

    def check(self, path: str, kinds: Iterable[Kind], session_id: int) -> list[Kind]:
        """Return those of the kinds that a session watches.

        :raises Refused: there is none of these kinds
        """
        found = [kind for kind in kinds if session_id in self._sessions.get((path, kind), ())]
        if not found:
            raise Refused(Code.NO_WATCHER)
        return found

    def forget(self, session_id: int) -> None:
        """Forget the watches of a connection, as a server does that loses it."""
        for watch in [watch for watch, ids in self._sessions.items() if session_id in ids]:
            self._remove(watch, session_id)

    def by_path(self) -> dict[str, list[int]]:
        """Return which sessions watch each path."""
        found: dict[str, list[int]] = {}
        for (path, _), ids in self._sessions.items():
            found[path] = sorted({*found.get(path, ()), *ids})
        return found

    def fire(self, event: Event, path: str) -> Iterable[int]:
        """Return the sessions that hear of an event, each once, and end watches that fire once."""
        heard: dict[int, None] = {}
        for kind in _ENDS[event]:
            heard |= self._sessions.pop((path, kind), {})
        heard |= self._sessions.get((path, Kind.PERSISTENT), {})
        above = "" if event == Event.CHILD else path
        while above:
            heard |= self._sessions.get((above, Kind.RECURSIVE), {})
            above = parent(above) if above != "/" else ""
        return heard

    def _remove(self, watch: tuple[str, Kind], session_id: int) -> None:
        self._sessions[watch].pop(session_id)
        if not self._sessions[watch]:
            del self._sessions[watch]
