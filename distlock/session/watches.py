"""Shares watches: one on the server for all who need it in this process.

A watch is removed on the server when nobody needs it any more.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from distlock.engine.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import EngineClient
    from distlock.engine.reply import Done

    from .session import Session

    #: Called with whether the watched node was deleted, or its watch lost with the session.
    Watcher: TypeAlias = Callable[[bool], None]

#: The subject of a watch: a path, and whether the names of its children or its own data.
Watched: TypeAlias = tuple[str, bool]


class SharedWatches:
    """The watches of one session."""

    def __init__(self, session: Session, client: EngineClient) -> None:
        self._session = session
        self._client = client
        self.watchers: dict[Watched, set[Watcher]] = {}
        #: Requests about watches go out in the order of the changes to `watchers`. Reentrant: the
        #: outcome of a request that cannot be sent comes at once.
        self.lock = threading.RLock()

    def watch(self, path: str, changed: Watcher, done: Done, *, children: bool = False) -> None:
        """Read a node and call ``changed(deleted)`` at its next change, or when the watch is lost.

        The watch is set with getData, never with exists: that would leave one behind on a node that
        is gone (CURATOR-107).

        :param children: list the names of the node's children and watch these instead
        """
        watched = path, children

        def set_or_not(value: Any, error: BaseException | None) -> None:
            with self.lock:
                if error is None:
                    if watched not in self.watchers:  # an earlier watch has fired meanwhile
                        self._remove(watched)
                elif self._discard(watched, changed):
                    # An earlier watcher's may be left, whose removal found this one in its place.
                    self._client.forget_watchers(path, children=children)
            done(value, error)

        request = self._client.listing if children else self._client.reading
        with self.lock:
            self.watchers.setdefault(watched, set()).add(changed)
            self._session.send(request(path, partial(self._fired, watched)), set_or_not)

    def unwatch(self, path: str, changed: Watcher, *, children: bool = False) -> None:
        """Remove a watcher, and the server's watch if nobody else needs it.

        Any thread may call it, any number of times.
        """
        watched = path, children
        with self.lock:
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
        kazoo = self._session.kazoo
        if kazoo is not None and kazoo.watches(path, children=children):
            # Later, since an answer that sets our watch may be half read.
            self._session.soon(partial(self._removed, watched, None, None))
            return
        request = self._client.unwatching(path, children=children)
        self._session.send(request, partial(self._removed, watched))

    def _fired(self, watched: Watched, deleted: bool) -> None:
        with self.lock:
            watchers = self.watchers.pop(watched, set())
        for changed in watchers:
            guarded(changed, deleted)

    def _removed(self, watched: Watched, value: Any, error: BaseException | None) -> None:
        path, children = watched
        with self.lock:
            if watched not in self.watchers:
                self._client.forget_watchers(path, children=children)
