"""Keeps one connection up, and the session of the moment, for the engines without kazoo.

Everything happens on the connection thread, which connects, serves, and connects again: requests
are answered in order, watches fire between the answers where the changes were, and no callback runs
in the thread of a caller. `distlock.engine.protocol.EngineClient` tells of the methods.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from distlock.engine.calls import Latch, start_thread, this_thread
from distlock.engine.deadline import SessionDeadline, now
from distlock.engine.guard import guarded, report_once
from distlock.engine.kazoo import ConnectionDropped, ConnectionLoss
from distlock.engine.reply import Reply
from distlock.engine.serving import SHORTEST_PAUSE, Serving, Submitting
from distlock.exceptions import LockUnavailable
from distlock.logs.loggers import Outage

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Configuration

#: Kinds of events: a node is gone, its data has changed, a ping is wanted. Any other is of a list.
_DELETED: Final = "D"
_CHANGED: Final = "C"
_PING: Final = "P"
#: The shortest time between two pings, in seconds.
_LEAST_PING_SECONDS: Final = 0.005

#: The kinds of requests that a message may answer beside.
READ: Final = b"read"
LIST: Final = b"list"
#: Such a kind, and a path.
Asked = tuple[bytes, str]


class Both(NamedTuple):
    """Where the two outcomes of a create that also lists the line go."""

    created: Reply
    listed: Reply

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Take the answer, or the news that there will be none."""
        node, names = (None, None) if error else value
        self.created.settle(node, error)
        self.listed.settle(names, error)

    def set_exception(self, error: BaseException) -> None:
        """Take the news that there will be no answer."""
        self.settle(None, error)


class OwnClient(Serving, Submitting):
    """A client that connects by itself; a subclass knows the protocol, and makes the requests.

    Its requests have ``function``, ``path``, ``watcher``, ``children`` and ``creates``.

    :param where: how messages name the server
    """

    tells_the_rest = True
    # A connection whose ping gets no answer until the next one is given up with a sixth of the
    # session timeout left before the deadline: an acquire renews nothing that would move that.
    pings = 4

    # --- what a subclass has ---------------------------------------------------------------------

    #: Connects, sets `_socket`, and begins a session, or carries one on.
    _connect: Callable[[], None]
    #: Returns why the server refuses, given the error of a connection, or None.
    _refused: Callable[[BaseException], BaseException | None]
    #: Queues a request that renews the session, and gives its reply to the argument.
    _renew: Callable[[Reply], None]
    #: Returns the request that ends the session.
    _good_bye: Callable[[], Any]
    #: Returns a step that creates a contender's node as one that also lists the line: so who waits
    #: asks once, and hears once.
    joining: Callable[[Any], Any]
    #: The errors with which a connection ends in a way that was foreseen.
    usual: ClassVar[tuple[type[BaseException], ...]]

    def __init__(
        self, conf: Configuration, changed: Callable[[bool, int], None], where: str
    ) -> None:
        self.client = self._connection = self  # with kazoo they are two
        self._conf = conf
        self._where = where
        self._changed = changed
        self.steps = deque()
        self.deadline = SessionDeadline()
        self.stopped = False
        #: Opened when it stops, for the pause between two tries.
        self._ending = Latch()
        self.outage = Outage(where)
        self.session_timeout = self.negotiated_timeout = conf.session_timeout
        #: The seconds that a server may take for each step of a connection.
        self._patience = max(conf.connect_timeout / 2, 0.2)
        self._reported: set[tuple[Any, ...]] = set()
        self._socket: Any = None
        self._live = False
        self._queue = deque()
        #: Requests that the server has not answered yet, in their order, each with its reply.
        self._pending: deque[Any] = deque()
        self._data_watchers, self._child_watchers = {}, {}
        #: While a message of the server is reported: what it tells beside, by what one would ask.
        self._told: dict[Asked, Any] = {}
        #: Requests that it answers, and what it answers.
        self._answered: deque[tuple[Any, Reply, Any]] = deque()
        #: When the ping was sent that is not answered yet (`time.monotonic`).
        self._pinged_at: float | None = None
        self.session_id = 0
        self.password = b""
        #: The number of this connection, which rises.
        self._number = 0
        #: When the last request was sent that has renewed the session (`deadline.now`). A create
        #: renews nothing on the server.
        self.renewed_at = 0.0
        self._read_sock, self._write_sock = socket.socketpair()
        self._read_sock.setblocking(False)
        self._write_sock.setblocking(False)
        self.routine = threading.Thread(
            target=self._run, name=f"distlock-{conf.alias}", daemon=True
        )

    # --- connecting ------------------------------------------------------------------------------

    def _run(self) -> None:
        self.thread = threading.get_ident()
        this_thread.ours = True
        try:
            while not self.stopped:
                if not self._attempt():
                    self.pause(self._ending.wait)
        finally:
            self.stopped = True
            self.wire = None
            self.fail_queued()
            guarded(self._changed, False, 0)
            self.close()

    def close(self) -> None:
        """Close the sockets that wake the thread, once it has ended or could not be started."""
        waking, self._write_sock = self._write_sock, None
        if waking is not None:
            waking.close()
        self._read_sock.close()

    def _attempt(self) -> bool:
        """Connect and serve until the connection ends; return whether there was one."""
        connected = False
        try:
            self.fail_queued()
            if self.cut_off:
                raise ConnectionRefusedError("a test has cut the connection")  # noqa: TRY301
            self._connect()
            self._busy_since = self._pinged_at = None
            self.failure = self.trouble = self.given_up = None
            connected = self._live = True
            self.next_pause = SHORTEST_PAUSE
            self.outage.end()
            self.fail_queued()
            guarded(self._changed, True, self.session_id)
            self.serve(self._patience)
        except BaseException as error:  # noqa: BLE001 - the session would end with the thread
            self._note(error)
        self.disconnected()
        gone, self._socket, self.wire = self._socket, None, None
        if gone is not None:
            gone.close()
        return connected

    def _note(self, error: BaseException) -> None:
        """Keep the reason of a failure for messages; log one that nobody has foreseen."""
        self.failure, self.trouble = error, self._refused(error)
        if not isinstance(error, (*self.usual, OSError, ConnectionDropped)):
            report_once(error, self._reported)

    # --- what a session uses ---------------------------------------------------------------------

    def connect(self) -> None:
        try:
            start_thread(self.routine)
        except LockUnavailable:
            self.close()
            raise

    @property
    def credentials(self) -> tuple[int, bytes]:
        return self.session_id, self.password

    def say_goodbye(self, seconds: float) -> bool:
        self.stopped = True
        self._ending.open()
        self._queue.append((self._good_bye(), None))
        with suppress(OSError):  # it has ended already
            self.wake()
        if self.routine.ident is not None and self.routine is not threading.current_thread():
            self.routine.join(seconds)
        return self.closed_session

    # --- on the connection thread ----------------------------------------------------------------

    def disconnected(self) -> None:
        """Report that there is no connection, and that what was asked gets no answer."""
        if not self.stopped:
            self.outage.note(self.reason)
        if not self._live:
            return
        self._live = False
        guarded(self._changed, False, self.session_id)
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.close()
        while self._pending:
            _, reply, *_ = self._pending.popleft()
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

    def watch(self, request: Any) -> None:
        """Keep the callback of a watch that the server has set."""
        watchers = self._child_watchers if request.children else self._data_watchers
        watchers.setdefault(request.path, set()).add(request.watcher)

    def fire(self, kind: str, path: str = "", names: list[str] | None = None) -> None:
        """Call the watchers of an event; `names` are those that are left beside a deleted node."""
        if kind == _PING:
            self.ping()
            return
        watchers: list[Callable[[bool], None]] = []
        if kind in (_DELETED, _CHANGED):
            watchers += self._data_watchers.pop(path, ())
        if kind != _CHANGED:
            watchers += self._child_watchers.pop(path, ())
        left = {} if names is None else {(LIST, path.rpartition("/")[0]): names}
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
            (step, created), (listing, listed) = calls
            above = LIST, step.path.rpartition("/")[0], None
            if step.creates and (listing.function, listing.path, listing.watcher) == above:
                both: Any = Both(created, listed)
                calls = ((self.joining(step), both),)
        if len(calls) > 1 or not (self._told and self._told_already(*calls[0])):
            super().submit(*calls, first=first)

    def _told_already(self, request: Any, reply: Reply) -> bool:
        """Answer a request by what the message tells that is being reported, if it does."""
        value = self._told.get((request.function, request.path))
        if value is None or self._pending or self._queue or self.thread != threading.get_ident():
            return False
        self._answered.append((request, reply, value))
        return True

    def ping(self) -> None:
        """Renew the session."""
        sent_at = now()

        def answered(_: Any, error: BaseException | None) -> None:
            self._pinged_at = None
            if error is None:
                self.renewed_at = sent_at

        self._renew(Reply(answered, None, lambda _: None, self.session_id))

    def _ping(self, timeout: float) -> None:
        now = time.monotonic()
        if self._pinged_at is None:
            self._pinged_at = now
            self.ping()
        elif now - self._pinged_at > self.negotiated_timeout / 5:
            raise ConnectionDropped("The server does not answer.")

    def _plan(self, seconds: float) -> None:
        """Ask again when the next session of all may have ended, if anybody waits for that.

        Or soon, if there is more to clear away than one ping does.
        """
        if self._data_watchers or self._child_watchers or not seconds:
            at = time.monotonic() + max(seconds, _LEAST_PING_SECONDS)
            self._ping_at = min(self._ping_at, at)
