"""A client whose server is Redis; stands in for `distlock.engine.zookeeper.client.Client`.

As there, everything happens on the connection thread: requests are answered in order, watches fire
between the answers where the changes were, and no callback runs in the thread of a caller.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import ConnectionLoss, NoNodeError

from distlock.engine.deadline import SessionDeadline, now
from distlock.engine.guard import guarded
from distlock.engine.reply import Reply
from distlock.engine.serving import Submitting
from distlock.logs.outages import Outage

from .address import where
from .connection import RedisConnection
from .errors import RedisRefused
from .joining import joined
from .requests import LIST, Asked, Requests, good_bye
from .tls import check_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.conf import Configuration

#: The watch events, by the first letter of their message.
_DELETED: Final = "D"
_CHANGED: Final = "C"
#: The message by which the server asks for a ping.
_PING: Final = "P"


class RedisClient(Submitting, Requests):
    """One connection that keeps itself up, and its session of the moment.

    A method without a docstring here has that of `Client`.

    :param changed: called on the connection thread when a connection came (True) or went (False),
        with the id of the session, 0 for none
    :raises ImproperlyConfigured: a file of TLS that the URL names cannot be read
    """

    #: A Redis has none.
    chroot = ""
    _connection: RedisConnection

    def __init__(self, conf: Configuration, changed: Callable[[bool, int], None]) -> None:
        check_files(conf)
        self._conf = conf
        self._changed = changed
        self.steps = deque()
        self.deadline = SessionDeadline()
        self._queue = deque()
        #: Requests that the server has not answered yet, in their order: with it, where the outcome
        #: goes, and how many answers it has.
        self._pending: deque[Any] = deque()
        self.stopped = False
        self._live = False
        #: The callbacks of watches, by path: of a node, and of the names of its children.
        self._data_watchers: dict[str, set[Callable[[bool], None]]] = {}
        self._child_watchers: dict[str, set[Callable[[bool], None]]] = {}
        #: While a message of the server is reported: what it tells beside, by what one would ask.
        self._told: dict[Asked, Any] = {}
        #: Requests that it answers, and what it answers.
        self._answered: deque[tuple[Any, Reply, Any]] = deque()
        #: Nodes that too few replicas have confirmed, to be deleted.
        self._given_back: set[str] = set()
        self._connection = RedisConnection(self, conf)
        self.outage = Outage(where(conf))

    # --- what a session uses ---------------------------------------------------------------------

    def connect(self) -> None:
        try:
            self._connection.routine.start()
        except RuntimeError:  # no thread could be started
            self._connection.close()
            raise

    @property
    def session_id(self) -> int:
        return self._connection.session_id

    @property
    def credentials(self) -> tuple[int, bytes]:
        return self._connection.session_id, self._connection.password

    @property
    def session_timeout(self) -> float:
        return self._connection.negotiated_timeout

    @property
    def renewed_at(self) -> float:
        # A create renews nothing on the server.
        return self._connection.renewed_at

    @property
    def trouble(self) -> BaseException | None:
        return self._connection.trouble

    def forget_watchers(self, path: str, *, children: bool = False) -> None:
        (self._child_watchers if children else self._data_watchers).pop(path, None)

    def explain(self, error: BaseException | None) -> str:
        if isinstance(error, RedisRefused):
            return str(error)
        server = where(self._conf)
        if error is None:
            tls = ", with TLS on that port" if self._conf.hosts.startswith("rediss") else ""
            return f"{server} did not answer in time. Is it running, and reachable{tls}?"
        return f"{server} could not serve the request: {error!r}."

    def say_goodbye(self, seconds: float) -> bool:
        self.stopped = True
        self._queue.append((good_bye(), None))
        with suppress(OSError):  # it has ended already
            self._connection.wake()
        routine = self._connection.routine
        if routine.ident is not None and routine is not threading.current_thread():
            routine.join(seconds)
        return self._connection.closed_session

    # --- on the connection thread ----------------------------------------------------------------

    def connected(self) -> None:
        """Report a connection, and repeat what must not be forgotten."""
        self._live = True
        self.outage.end()
        self.fail_queued()
        guarded(self._changed, True, self._connection.session_id)
        self._give_back_again()

    def disconnected(self) -> None:
        """Report that there is no connection, and that what was asked gets no answer."""
        connection = self._connection
        if not self.stopped:
            self.outage.note(connection.reason)
        if not self._live:
            return
        self._live = False
        guarded(self._changed, False, connection.session_id)
        wire, connection.wire = connection.wire, None
        if wire is not None:
            wire.close()
        while self._pending:
            _, reply, _ = self._pending.popleft()
            if reply is not None:
                reply.set_exception(ConnectionLoss())
        self.fail_queued()
        watchers = [*self._data_watchers.values(), *self._child_watchers.values()]
        self._data_watchers, self._child_watchers = {}, {}
        for changed in [one for some in watchers for one in some]:
            guarded(changed, False)

    def fail_queued(self) -> None:
        """Fail what was queued in the instant of a loss, but leave the good-bye."""
        for _ in range(len(self._queue)):
            request, reply = self._queue.popleft()
            if reply is None:
                self._queue.append((request, reply))
            else:
                reply.set_exception(ConnectionLoss())

    def session_over(self) -> None:
        """Report that the session is over, with all its nodes."""
        self._given_back.clear()
        guarded(self._changed, False, 0)

    def ended(self) -> None:
        """Report that the connection thread ends."""
        self.stopped = True
        self._connection.wire = None
        self.fail_queued()
        guarded(self._changed, False, 0)

    def watch(self, request: Any) -> None:
        """Keep the callback of a watch that the server has set."""
        watchers = self._child_watchers if request.children else self._data_watchers
        watchers.setdefault(request.path, set()).add(request.watcher)

    @property
    def watching(self) -> bool:
        """Whether there is any watch."""
        return bool(self._data_watchers or self._child_watchers)

    def fire(self, event: str) -> None:
        """Call the watchers of an event."""
        kind = event[0]
        if kind == _PING:
            self.ping()
            return
        path, told, names = event[1:].partition("\0")
        watchers: list[Callable[[bool], None]] = []
        if kind in (_DELETED, _CHANGED):
            watchers += self._data_watchers.pop(path, ())
        if kind != _CHANGED:
            watchers += self._child_watchers.pop(path, ())
        left = {(LIST, path.rpartition("/")[0]): names.split("/") if names else []} if told else {}
        self.deliver(left, self._call, watchers, kind == _DELETED)

    def _call(self, watchers: list[Callable[[bool], None]], deleted: bool) -> None:
        for changed in watchers:
            guarded(changed, deleted)

    def deliver(self, told: dict[Asked, Any], report: Callable[..., None], *about: Any) -> None:
        """Report a message of the server; what it tells beside answers what its callbacks ask.

        The server would have answered so before anything that it sends later.
        """
        self._told = told
        report(*about)
        self._told = {}
        while self._answered:
            request, reply, value = self._answered.popleft()
            if request.watcher is not None:
                self.watch(request)
            reply.settle(value, None)

    def submit(self, *calls: tuple[Any, Reply], first: bool = False) -> None:
        if len(calls) == 2:
            super().submit(*joined(*calls), first=first)
        elif not (self._told and self._told_already(*calls[0])):
            super().submit(*calls, first=first)

    def _told_already(self, request: Any, reply: Reply) -> bool:
        """Answer a request by what the message tells that is being reported, if it does."""
        value = self._told.get((request.function, getattr(request, "path", "")))
        if (
            value is None
            or self._pending
            or self._queue
            or self._connection.thread != threading.get_ident()
        ):
            return False
        self._answered.append((request, reply, value))
        return True

    def ping(self) -> None:
        """Renew the session, and repeat what was refused."""

        sent_at = now()

        def answered(_: Any, error: BaseException | None) -> None:
            self._connection.answered_ping(sent_at if error is None else None)

        reply = Reply(answered, None, lambda _: None, self.session_id)
        self._queue.append((self.proof("", by_write=True), reply))
        self._give_back_again()

    def give_back(self, path: str) -> None:
        """Delete a node that too few replicas have confirmed; again until it is done."""
        self._given_back.add(path)
        self._delete(path)

    def _give_back_again(self) -> None:
        for path in self._given_back:
            self._delete(path)

    def _delete(self, path: str) -> None:
        def deleted(_: Any, error: BaseException | None) -> None:
            if error is None or isinstance(error, NoNodeError):
                self._given_back.discard(path)

        reply = Reply(deleted, None, lambda _: None, self.session_id)
        self._queue.append((self.deletion(path), reply))
