"""Deletes nodes for certain, without waiting for it, and the parents that this leaves idle.

A delete that is lost is sent again after the reconnection, and one that is refused also after a
pause, until it is done or the session is over (Curator's ``FailedDeleteManager``, CURATOR-678).
A node whose create was not answered is looked for by its name first, and so is what a caller may
have left who was torn at any line. Any thread may add a delete; the connection thread does the
rest.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from distlock.engine.errors import UNKNOWN, ConnectionLost, NoNode, SessionOver
from distlock.engine.guard import take_all
from distlock.engine.reply import ignore
from distlock.engine.timer import call_later
from distlock.logs.loggers import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import EngineClient
    from distlock.engine.reply import Done

    from .requests import SessionRequests


#: How long an idle parent node is kept before this process removes it, in seconds. The server
#: removes empty containers too, but at most 10,000 a minute (CURATOR-173).
IDLE_PARENT_SECONDS = 60.0
#: The pauses before a refused delete is sent again, in seconds: the first, and the longest.
REFUSED_SECONDS = 0.5, 30.0


class GuaranteedDelete:
    """The deletes of one session that are not done yet."""

    def __init__(self, session: SessionRequests, client: EngineClient) -> None:
        self._session = session
        self._client = client
        #: For each path, the function to call when it is known to be gone.
        self.pending: dict[str, Callable[[], None] | None] = {}
        #: Those of them that the server has refused, with the session's id; and the next pause.
        self._refused: dict[str, int] = {}
        self._pause = REFUSED_SECONDS[0]
        self._pausing = False
        #: The searches that the server has refused.
        self._refused_searches: deque[Callable[[], None]] = deque()
        #: Nodes that somebody else has deleted, with the session's id. A failover of Redis may undo
        #: that, and nobody would believe in such a node: so they are deleted at each connection. It
        #: undoes no transaction before the last one of a session that it keeps (``connect`` in
        #: ``tree.lua``), so a later delete of ours settles them.
        self._broken: dict[str, int] = {}
        #: The containers that this process has made, and since when they idle.
        self._idle_parents: dict[str, float] = {}

    def delete(self, path: str, session_id: int, gone: Callable[[], None] | None = None) -> None:
        """Delete a node of session `session_id` for certain, without waiting for it.

        Any thread may call it, any number of times.

        :param session_id: 0 for a persistent node, which does not go with a session
        :param gone: called on the connection thread when the node is known to be gone
        """
        # Sent again when called again: the first call may have been interrupted before it sent.
        self.pending.setdefault(path, gone)
        if self._session.connected:
            self._send(path, session_id)
        else:
            self._session.when_connected(partial(self._send, path, session_id))

    def sweep(self, path: str, prefix: str) -> None:
        """Delete what an unanswered create may have made: our nodes under `path` that begin so."""
        session_id = self._session.id

        def wanted() -> bool:  # or else the node went with its session
            return self._session.id == session_id

        def found(names: Any, error: BaseException | None) -> None:
            if isinstance(error, ConnectionLost):
                self._session.when_connected(look)
            for name in names or ():
                if name.startswith(prefix):
                    self.delete(f"{path}/{name}", session_id)

        look = partial(self.search, path, found, wanted)
        self._session.when_connected(look)

    def search(self, path: str, done: Done, wanted: Callable[[], bool]) -> None:
        """List what is under `path`, with all that was acknowledged before, while it is `wanted`.

        Where the server refuses, it is asked again after a pause: nobody else would find the node.
        """

        def listed(names: Any, error: BaseException | None) -> None:
            if error is None or isinstance(error, NoNode | ConnectionLost | SessionOver):
                done(names, error)
            else:
                self._refused_searches.append(partial(self.search, path, done, wanted))
                if len(self._refused_searches) == 1:  # the others come along
                    call_later(REFUSED_SECONDS[0], self._search_again)

        if wanted():
            self._session.children(path, listed, sync=True)

    def _search_again(self) -> None:
        self._session.soon(partial(take_all, self._refused_searches))

    def _send(self, path: str, session_id: int) -> None:
        if session_id not in (0, self._session.id):  # the node went with its session
            self._session.soon(partial(self._settled, path))
        else:
            answered = partial(self._answered, path, session_id)
            self._session.send(self._client.deletion(path), answered)

    def _answered(
        self, path: str, session_id: int, value: Any, error: BaseException | None
    ) -> None:
        if isinstance(error, ConnectionLost if session_id else UNKNOWN):
            self._session.when_connected(partial(self._send, path, session_id))
        elif error is None or isinstance(error, NoNode | SessionOver):
            broken = isinstance(error, NoNode) and (
                path in self._session.nodes or path in self._broken
            )
            self._settled(path)
            if error is None:
                self._broken.clear()
            elif broken:
                self._broken[path] = session_id
        else:
            self._note_refusal(path, session_id, error)

    def _note_refusal(self, path: str, session_id: int, error: BaseException) -> None:
        if path not in self._refused:
            logger.error(
                "%s could not be deleted, and is in the way of others until it is: it is tried "
                "again. %s In ZooKeeper, deleting needs the DELETE permission on the parent node.",
                path,
                self._client.explain(error),
            )
        self._refused[path] = session_id
        if not self._pausing:
            self._pausing = True
            call_later(self._pause, self._pause_over)
            self._pause = min(2 * self._pause, REFUSED_SECONDS[1])

    def _pause_over(self) -> None:
        self._pausing = False
        self._session.soon(self.send_again)

    def send_again(self) -> None:
        """Send again what was refused, or may be undone. Called on the connection thread."""
        for path, session_id in [*self._refused.items(), *self._broken.items()]:
            self._send(path, session_id)

    def _settled(self, path: str) -> None:
        self._session.nodes.discard(path)
        if self._refused.pop(path, None) is not None:
            self._pause = REFUSED_SECONDS[0]
        self._broken.pop(path, None)
        gone = self.pending.pop(path, None)
        if gone is not None:
            gone()
        self._remove_idle_parents(path.rpartition("/")[0])

    def _remove_idle_parents(self, used: str) -> None:
        """Note that `used` is in use, and remove two parents that have been idle for a minute.

        It removes only containers that this process has made: another one's may be a lock's path.
        """
        now = time.monotonic()
        self._idle_parents.pop(used, None)
        if used in self._session.made_parents:
            self._idle_parents[used] = now
        for path, since in list(islice(self._idle_parents.items(), 2)):
            if now - since < IDLE_PARENT_SECONDS:
                break
            del self._idle_parents[path]
            made = self._session.made_parents.pop(path)
            self._session.read(path, partial(self._remove_parent, path, made))

    def _remove_parent(
        self, path: str, czxid: int, value: Any, error: BaseException | None
    ) -> None:
        """Remove a container if it is still the one that was made."""
        if error is None and value[1].czxid == czxid:
            self._session.send(self._client.deletion(path), ignore)  # refused if it has children
