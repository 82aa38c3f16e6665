"""A process's connection to the ensemble, in the place of `distlock.engine.zookeeper`.

It keeps the rules of `Connection` there: the pauses between two tries, which session a server is
asked for, what is done with what was asked on a lost connection, and when a ping is due. A request
is a tuple: its kind, and its arguments.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from distlock.engine.deadline import SessionDeadline
from distlock.engine.guard import guarded, take_all
from distlock.engine.kazoo import ConnectionDropped, ConnectionLoss, SessionExpiredError
from distlock.engine.zookeeper.connection import Connection as Real

from .links import DELAY, END, Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.conf import Configuration
    from distlock.engine.reply import Reply

    from .process import Process
    from .server import Server
    from .world import Thread

#: How often the wire is found busy, so that the connection thread sends a caller's request.
BUSY = 0.05


class Requests:
    """Makes the requests; `distlock.engine.protocol` tells of each."""

    renewed_at: float | None = None
    tells_the_rest = False

    def node(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        return "create", path, data, flags

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return "list", path, changed

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return "get", path, changed

    def writing(self, path: str, data: bytes, version: int) -> Any:
        return "write", path, data, version

    def creation(self, path: str) -> Any:
        return self.node(path)

    def presence(self, path: str) -> Any:
        return "check", path

    def multi(self, steps: list[Any]) -> Any:
        return "multi", steps

    def proof(self, path: str, *, by_write: bool) -> Any:
        return self.multi([self.presence(path)]) if by_write else ("sync", path)

    def deletion(self, path: str, version: int = -1) -> Any:
        return "delete", path, version

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        return "unwatch", path, children


class Client(Requests):
    """One connection that keeps itself up, and its session; see `EngineClient`."""

    chroot = ""
    trouble = None
    reason = "no answer"
    pings = Real.pings
    #: For `Connection._ping`: it is on its own thread, and no other sends there.
    wire = None

    def __init__(
        self, process: Process, conf: Configuration, changed: Callable[[bool, int], None]
    ) -> None:
        self._process = process
        self._conf = conf
        self._changed = changed
        self.client = self
        self.stopped = False
        self.steps: deque[Callable[[], None]] = deque()
        self.deadline = SessionDeadline()
        self.session_id = 0
        #: The least that was granted to the session of now.
        self.negotiated_timeout = 0.0
        self._connected = False
        self._lost_at = 0.0
        self._seen = 0
        self._numbers = 0
        self._link: Connection | None = None
        self._inbox: deque[Any] = deque()
        self._queue: deque[tuple[Any, Reply]] = deque()
        self._pending: deque[tuple[Any, Reply | None, int]] = deque()
        #: By path, and whether they watch its children.
        self.watchers: dict[tuple[str, bool], list[Callable[[bool], None]]] = {}
        self._asked_at: float | None = None
        self._heard_at = self._ping_at = 0.0
        self._thread: Thread | None = None
        self._per_server = max(conf.connect_timeout / (len(process.servers) + 1), 0.2)

    @property
    def credentials(self) -> tuple[int, bytes]:
        return self.session_id, b""

    @property
    def session_timeout(self) -> float:
        return self.negotiated_timeout

    @property
    def server(self) -> str:
        return "" if self._link is None else str(self._link.hosts[1])

    @property
    def server_host(self) -> Any:
        """The server that it is connected to, or None."""
        return None if self._link is None else self._link.hosts[1]

    def explain(self, error: BaseException | None, away: str = "") -> str:
        return repr(error)

    # --- from any thread -------------------------------------------------------------------------

    def connect(self) -> None:
        self._thread = self._process.spawn("connection", self._run)

    def submit(self, *calls: tuple[Any, Reply], first: bool = False) -> None:
        if (
            not self._connected
            or self._queue
            or self._process.world.thread is self._thread
            or self._process.random.random() < BUSY
        ):
            (self._queue.extendleft if first else self._queue.extend)(calls)
            self._wake()
        else:
            for request, reply in calls:
                self._send(request, reply)

    def soon(self, step: Callable[[], None]) -> None:
        self.steps.append(step)
        self._wake()

    def drop(self) -> None:
        if self._link is not None:
            self._process.world.say(self._process, "drops its connection")
            self._link.close(0)
            self._take(END)

    def forget_watchers(self, path: str, *, children: bool = False) -> None:
        self.watchers.pop((path, children), None)

    def say_goodbye(self, seconds: float) -> bool:
        self.stopped = True
        if self._connected:
            self._send(("close",), None)
        self._wake()
        return True

    def _wake(self) -> None:
        if self._thread is not None:
            self._thread.wake()

    def _take(self, message: Any) -> None:
        self._inbox.append(message)
        self._wake()

    def _send(self, request: Any, reply: Reply | None) -> None:
        self._numbers += 1
        self._pending.append((request, reply, self._numbers))
        if request[0] in ("list", "get"):
            request = (*request[:2], request[2] is not None)
        process = self._process
        process.world.happened(f"{request[0]} sent", process)
        if self._link is not None:
            self._link.send(0, (self._numbers, request))

    # --- connecting ------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.05
        while not self.stopped:
            self._fail(ConnectionLoss())
            servers = list(self._process.servers)
            self._process.random.shuffle(servers)
            for server in servers:
                if self.stopped:
                    break  # type: ignore[unreachable]  # meanwhile
                try:
                    if self._open(server):
                        self._greet()
                        pause = 0.05
                        self._serve()
                except ConnectionDropped as error:
                    self._lose(str(error))
                except SessionExpiredError:
                    self._end_session()
                finally:
                    if self._link is not None:
                        self._link.close(0)
                        self._link = None
                    self._inbox.clear()
            self._sleep(pause * self._process.random.uniform(0.7, 1.3))
            pause = min(pause * 2, self._conf.session_timeout / 20, 0.75)

    def _pause(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.wait(seconds)

    def _sleep(self, seconds: float) -> None:
        """Wait, whoever wakes us; until a message has come, if a connection is open."""
        until = self._process.clock() + seconds
        while (rest := until - self._process.clock()) > 0 and not self._inbox and not self.stopped:
            self._pause(rest)

    def _open(self, server: Server) -> bool:
        self._inbox.clear()
        process = self._process
        if not process.links.works(process, server):
            self._sleep(self._per_server)
            return False
        self._sleep(2 * DELAY)
        if server.dead:
            return False
        link = self._link = Connection(process.links, (process, server))
        link.take[0] = lambda message: self._take(message) if link is self._link else None
        server.now(link, server.accept, link)
        return True

    def _demand(self, *message: Any) -> Any:
        """Send something while connecting, and return the answer, None without one in time."""
        if self._link is not None:
            self._link.send(0, message)
        timeout = self._conf.session_timeout / len(self._process.servers)
        self._sleep(min(timeout, self._per_server))
        answer = self._inbox.popleft() if self._inbox else None
        if answer is END:
            raise ConnectionDropped("The server has closed the connection.")
        return answer

    def _greet(self) -> None:
        """Begin a session, or go on with ours: `Connection._invoke`."""
        process = self._process
        asked_at = process.clock()
        overdue = asked_at - self._lost_at > self.negotiated_timeout > 0
        seen = 0 if overdue else self._seen
        answer = self._demand(seen, self._conf.session_timeout, self.session_id)
        if answer is None:
            if overdue:
                raise SessionExpiredError
            raise ConnectionDropped("The server does not answer.")
        _, session, granted = answer
        if overdue and granted > 0:
            ping = self._demand(-1, ("ping",))
            if ping is None or ping[2] < self._seen:
                self._link.send(0, (-2, ("close",))) if self._link else None
                raise SessionExpiredError
        self.negotiated_timeout = self.least(session, granted)
        self.deadline.connected(asked_at, self.negotiated_timeout)
        self._fail(ConnectionLoss())
        if granted <= 0:
            raise SessionExpiredError
        self.session_id = session
        self._connected = True
        process.world.say(process, f"is connected to {self.server}, session {session:x}")
        guarded(self._changed, True, session)
        process.world.happened("connected", process)

    def least(self, session: int, granted: float) -> float:
        """Return the session's timeout: only this connection may have a longer one."""
        return min(granted, self.negotiated_timeout) if session == self.session_id else granted

    # --- losing ----------------------------------------------------------------------------------

    def _lose(self, why: str) -> None:
        if self._connected:
            self._connected = False
            self._lost_at = self._process.clock()
            self._process.world.say(self._process, "has lost its connection:", why)
            guarded(self._changed, False, self.session_id)
            self._fail(ConnectionLoss())
            self._fire_all()

    def _end_session(self) -> None:
        self._process.world.say(self._process, f"knows that session {self.session_id:x} is over")
        self._connected = False
        guarded(self._changed, False, 0)
        self._fail(SessionExpiredError())
        self.session_id = self._seen = 0
        self._fire_all()

    def _fail(self, error: Exception) -> None:
        while self._pending:
            reply = self._pending.popleft()[1]
            if reply is not None:
                reply.set_exception(error)
        while self._queue:
            self._queue.popleft()[1].set_exception(error)

    def _fire_all(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for one in [one for some in watchers.values() for one in some]:
            guarded(one, False)

    # --- serving ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        interval = self.negotiated_timeout / self.pings
        self._asked_at = None
        self._ping_at = self._process.clock() + interval
        while True:
            if self.steps:
                take_all(self.steps)
            while self._queue:
                self._send(*self._queue.popleft())
            if not (self._inbox or self.steps):
                self._pause(min(max(self._ping_at - self._process.clock(), 0.0), interval))
            if self.steps:
                take_all(self.steps)
            while self._inbox:
                self._receive(self._inbox.popleft())
            if self._process.clock() >= self._ping_at:
                self._ping_at = self._process.clock() + interval
                cast("Any", Real)._ping(self, 0.0)

    def _ask(self, timeout: float) -> None:
        """Send a ping; `Connection._ping` calls it."""
        self._asked_at = self._process.clock()
        if self._link is not None:
            self._link.send(0, (-1, ("ping",)))

    def _receive(self, message: Any) -> None:
        if message is END:
            raise ConnectionDropped("The server has closed the connection.")
        self._heard_at = self._process.clock()
        kind, *rest = message
        if kind == "event":
            self._fire(*rest)
            return
        xid, zxid, value, error = rest
        if xid == -1:
            if self._asked_at is not None:
                self.deadline.heard(self._asked_at, self.negotiated_timeout)
                self._asked_at = None
            return
        if not self._pending or self._pending[0][2] != xid:
            raise ConnectionDropped(f"The server sent a reply out of order: number {xid}.")
        request, reply, _ = self._pending.popleft()
        self._seen = max(self._seen, zxid)
        if reply is not None:
            reply.settle(value, error)
            self._process.world.happened(f"{request[0]} answered", self._process)
        if request[0] in ("list", "get") and request[2] is not None and error is None:
            self.watchers.setdefault((request[1], request[0] == "list"), []).append(request[2])

    def _fire(self, event: str, path: str) -> None:
        children = {"changed": (False,), "deleted": (False, True), "child": (True,)}[event]
        for watched in [(path, one) for one in children]:
            for changed in self.watchers.pop(watched, ()):
                guarded(changed, event == "deleted")
