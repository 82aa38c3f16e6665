"""Shares watches: one on the server for all who need it in this process.

A watch is removed on the server when nobody needs it any more. Everything happens on the connection
thread, so it needs no lock, which a signal handler could find taken by the code that it interrupts.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from distlock.engine.deadline import now
from distlock.engine.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import EngineClient
    from distlock.engine.reply import Done

    from .requests import SessionRequests

    #: Called with whether the watched node was deleted, or its watch lost with the session.
    Watcher: TypeAlias = Callable[[bool], None]

#: The subject of a watch: a path, and whether the names of its children or its own data.
Watched: TypeAlias = tuple[str, bool]


class SharedWatches:
    """The watches of one session."""

    def __init__(self, session: SessionRequests, client: EngineClient) -> None:
        self._session = session
        self._client = client
        self.watchers: dict[Watched, set[Watcher]] = {}
        #: The connection thread.
        self.thread = 0

    def watch(self, path: str, changed: Watcher, done: Done, *, children: bool = False) -> None:
        """Read a node and call ``changed(deleted)`` at its next change, or when the watch is lost.

        Any thread may call it. The watch is set with getData, never with exists: that would leave
        one behind on a node that is gone (CURATOR-107).

        :param children: list the names of the node's children and watch these instead
        """
        self._do(partial(self._watch, (path, children), changed, done))

    def unwatch(self, path: str, changed: Watcher, *, children: bool = False) -> None:
        """Remove a watcher, and the server's watch with the last one. Any thread may call it."""
        self._do(partial(self._unwatch, (path, children), changed))

    def _do(self, step: Callable[[], None]) -> None:
        if self.thread == threading.get_ident():
            step()
        else:
            self._session.soon(step)

    # --- on the connection thread ----------------------------------------------------------------

    def _watch(self, watched: Watched, changed: Watcher, done: Done) -> None:
        path, children = watched
        sent_at = now()

        def set_or_not(value: Any, error: BaseException | None) -> None:
            if error is not None:  # perhaps from a thread that found the connection closed
                self._do(partial(self._not_set, watched, changed))
            else:
                self._session.note_round_trip(now() - sent_at)
                if watched not in self.watchers:  # an earlier watch has fired meanwhile
                    self._remove(watched)
            done(value, error)

        request = self._client.listing if children else self._client.reading
        self.watchers.setdefault(watched, set()).add(changed)
        self._session.send(request(path, partial(self._fired, watched)), set_or_not)

    def _not_set(self, watched: Watched, changed: Watcher) -> None:
        if self._discard(watched, changed):
            # An earlier watcher's may be left, whose removal found this one in its place.
            self._removed(watched)

    def _unwatch(self, watched: Watched, changed: Watcher) -> None:
        if self._discard(watched, changed):
            self._remove(watched)

    def _discard(self, watched: Watched, changed: Watcher) -> bool:
        """Forget a watcher; return whether it was the last one."""
        watchers = self.watchers.get(watched)
        if watchers is None or changed not in watchers:
            return False
        watchers.discard(changed)
        if watchers:
            return False
        del self.watchers[watched]
        return True

    def _remove(self, watched: Watched) -> None:
        path, children = watched
        request = self._client.unwatching(path, children=children)
        self._session.send(request, lambda *_: self._do(partial(self._removed, watched)))

    def _fired(self, watched: Watched, deleted: bool) -> None:
        for changed in self.watchers.pop(watched, set()):
            guarded(changed, deleted)

    def _removed(self, watched: Watched) -> None:
        path, children = watched
        if watched not in self.watchers:
            self._client.forget_watchers(path, children=children)
