"""Keeps a key taken after its hold, whatever happens to the holder (``hold_at_least=``).

Under the granted lock a *cool-down* is created: a persistent node with the number of the holder's
own, so all who come later wait behind it as behind any participant, also Curator's. Its name has
the time of its end, by the server's clock. From then on, contenders ignore and remove it: those who
list the line later, and those who wait. Each knows the server's time, at least, from the creation
of its own node.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from distlock.engine.timer import call_later
from distlock.keys import znodes
from distlock.process import in_child
from distlock.session.server_time import time_at

if TYPE_CHECKING:
    from distlock.engine.reply import Done
    from distlock.session.session import Session


class CoolDown:
    """The cool-down of a contender that was granted, for so many seconds from now on."""

    def __init__(self, contender: Any, seconds: float) -> None:
        self._contender = contender
        self._session: Session = contender.session
        self._seconds = seconds
        ends_at = contender.server_time(at_most=True) + seconds
        number = contender.node.number if contender.node else 0
        self._path = f"{contender.path}/{znodes.cool_down_name(ends_at, number)}"
        said = json.loads(contender.data)
        until = f"taken until {time_at(ends_at):%Y-%m-%d %H:%M:%S} UTC"
        label = "; ".join(filter(None, [said.get("label"), until]))
        # Nobody who waits for another lock: a wait for this one ends.
        said |= {"owner": f"{said.get('owner')} until {ends_at:.3f}", "label": label}
        self._data = json.dumps(said, separators=(",", ":")).encode()

    def create(self, done: Done) -> None:
        def made(value: Any, error: BaseException | None) -> None:
            if error is None:
                remove_after(self._session, self._path, self._seconds)
            done(value, error)

        if not self._contender.left:  # it may have waited for a connection
            self._session.create_persistent(self._path, self._data, made)

    def undo(self) -> None:
        """Remove it, whether its creation was answered or not."""
        remove_after(self._session, self._path, 0)


#: Those that are to be removed, by session and path: the timer refers to none.
_planned: dict[tuple[Session, str], _Removal] = {}


class _Removal:
    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._path = path

    def due(self) -> None:
        _planned.pop((self._session, self._path), None)
        # After a create that is being sent.
        self._session.soon(partial(self._session.delete, self._path, 0))


def remove_after(session: Session, path: str, seconds: float) -> None:
    """Remove the node of a cool-down, now or when its time is over, if this process lives."""
    removal = _Removal(session, path)
    if seconds <= 0:
        removal.due()
    elif _planned.setdefault((session, path), removal) is removal:
        call_later(seconds, removal.due)


@in_child
def _forget_the_parent() -> None:
    _planned.clear()
