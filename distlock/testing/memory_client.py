"""A client whose server is a tree in this process; stands in for ZooKeeper's `Client`.

As there, everything happens on one thread for each client, the connection thread: requests are
carried out and answered in order, watches fire between the answers where the changes were, and no
callback ever runs in the thread of a caller. Connections break, replies get lost and sessions
expire when a test says so, and never otherwise.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo.exceptions import (
    EXCEPTIONS,
    APIError,
    ConnectionLoss,
    KazooException,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Create2,
    Delete,
    GetChildren,
    GetData,
    SetData,
    Sync,
    Transaction,
)
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from distlock.embedded.watches import Kind
from distlock.engine.deadline import SessionDeadline
from distlock.engine.guard import guarded
from distlock.engine.zookeeper.client import explain
from distlock.engine.zookeeper.requests import Requests, access_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.conf import Configuration
    from distlock.embedded.tree import MemoryTree
    from distlock.engine.reply import Reply

_EPHEMERAL, _SEQUENTIAL, _CONTAINER = 1, 2, 4


class _Unwatching(NamedTuple):
    path: str
    kind: Kind


class MemoryClient(Requests):
    """One connection to a tree, and its session of the moment.

    A method without a docstring here has that of `Client`.

    :param changed: called on the connection thread when a connection came (True) or went (False),
        with the id of the session, 0 for none
    :raises RuntimeError: the tree belongs to the process from which this one was forked
    """

    def __init__(
        self, conf: Configuration, changed: Callable[[bool, int], None], *, tree: MemoryTree
    ) -> None:
        if tree.pid != os.getpid():
            raise RuntimeError(
                "The ZooKeeper in memory belongs to the process that made it, and this one was "
                "forked from that. Use a server in tests of several processes: the fixture "
                "`zookeeper_embedded`, or `zookeeper` for a real one."
            )
        self.tree = tree
        self.session_id = 0
        self.live = False
        self.stopped = False
        #: The reason why it cannot connect: none lasts.
        self.trouble: BaseException | None = None
        _, slash, chroot = conf.hosts.partition("/")
        self.chroot = slash + chroot
        self._acl = access_list(conf)
        self._changed = changed
        self._conf = conf
        self._timeout = conf.session_timeout
        self._data_watchers: dict[str, set[Callable[[Any], None]]] = {}
        self._child_watchers: dict[str, set[Callable[[Any], None]]] = {}
        #: Replies and events from the tree, in its order; steps to call; requests to send.
        self._received: deque[Callable[[], None]] = deque()
        self.steps: deque[Callable[[], None]] = deque()
        self.deadline = SessionDeadline()
        self._queue: deque[tuple[Any, Reply]] = deque()
        #: The reply to the request that the tree has carried out and is about to answer.
        self._pending: Reply | None = None
        self._awake: SimpleQueue[None] = SimpleQueue()
        #: When the tree ends the session of a client that it does not hear of.
        self._expires_at: float | None = None
        self._lose_reply = False
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"distlock-{conf.alias}-memory", daemon=True
        )

    # --- what a session uses ---------------------------------------------------------------------

    def connect(self) -> None:
        self._thread.start()

    @property
    def credentials(self) -> tuple[int, bytes]:
        return self.session_id, b"memory"

    @property
    def session_timeout(self) -> float:
        return self._timeout if self.session_id else 0.0

    @property
    def server(self) -> str:
        return "memory" if self.live else ""

    def submit(self, *calls: tuple[Any, Reply], first: bool = False) -> None:
        if self._ended.is_set():
            raise ConnectionError("The connection has been closed.")
        try:
            (self._queue.extendleft if first else self._queue.extend)(calls)
            self._wake()
        except BaseException:  # a soft time limit landed between the two
            self._wake()
            raise

    def soon(self, step: Callable[[], None]) -> None:
        self.steps.append(step)
        self._wake()

    def drop(self) -> None:
        self._receive(self._reconnect)

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        return _Unwatching(path, Kind.CHILDREN if children else Kind.DATA)

    def forget_watchers(self, path: str, *, children: bool = False) -> None:
        (self._child_watchers if children else self._data_watchers).pop(path, None)

    def explain(self, error: BaseException | None) -> str:
        return explain(error, self._conf)

    def say_goodbye(self, seconds: float) -> bool:
        self.stopped = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._ended.wait(seconds)
        return self._ended.is_set()

    # --- faults, for tests -----------------------------------------------------------------------

    def cut(self) -> None:
        """Lose the connection, and find no other until `mend`; return when it is lost.

        The session ends by itself when that takes longer than the session timeout.
        """
        self._on_thread(self._cut)

    def mend(self) -> None:
        """Connect again after `cut`; return when connected."""
        self._on_thread(self._connect)

    def expire(self) -> None:
        """Let the server end the session; return when there is another, or while cut at once."""
        self._on_thread(self._expire)

    def lose_next_reply(self) -> None:
        """Carry out the next request, and lose the connection before its reply; connect again."""
        self._lose_reply = True

    # --- the connection thread -------------------------------------------------------------------

    def event(self, kind: str, path: str, acl: object) -> None:
        """Take a watch event of the tree, from any thread."""
        self._receive(partial(self._fire, kind, path))

    def _receive(self, what: Callable[[], None]) -> None:
        self._received.append(what)
        self._wake()

    def _wake(self) -> None:
        self._awake.put(None)

    def _on_thread(self, what: Callable[[], None]) -> None:
        """Do something on the connection thread and wait until it is done."""
        done = threading.Event()
        self._receive(what)
        self._receive(done.set)
        if threading.current_thread() is not self._thread:
            while not (done.wait(0.1) or self._ended.is_set()):
                pass

    def _run(self) -> None:
        self._connect()
        while True:
            stopping = self.stopped  # before the work: what was asked first is done first
            self._work()
            if stopping:
                break
            try:
                self._awake.get(timeout=self._patience())
            except Empty:
                self._expires_at = None
                self.tree.end_session(self.session_id)
        self._say_goodbye()

    def _patience(self) -> float | None:
        """Return how long the session of a lost connection still lives, in seconds."""
        return None if self._expires_at is None else max(self._expires_at - time.monotonic(), 0)

    def _work(self) -> None:
        """Do all that there is to do: what came first, then the steps, then one request each."""
        while True:
            if self._received:
                guarded(self._received.popleft())
            elif self.live and self.steps:
                guarded(self.steps.popleft())
            elif self.live and self._queue:
                self._send(*self._queue.popleft())
            else:
                break

    def _send(self, request: Any, reply: Reply) -> None:
        self._pending = reply
        with self.tree.lock:  # so that events of later changes come after the reply
            value, error = None, None
            try:
                value = self._perform(request)
            except ZookeeperError as refusal:  # as the real client reads the code of a reply
                error = EXCEPTIONS.get(refusal.code, APIError)()
            except NotImplementedError as refusal:
                error = refusal
            if self._lose_reply:
                self._lose_reply = False
                self._received.append(self._reconnect)
            self._received.append(partial(self._answer, request, value, error))
            self.tree.reap_when_due()

    def _answer(self, request: Any, value: Any, error: Exception | None) -> None:
        reply, self._pending = self._pending, None
        if reply is None:  # it was lost with the connection
            return
        reply.settle(value, error)
        watcher = getattr(request, "watcher", None)
        if watcher is not None and error is None:
            of_children = isinstance(request, GetChildren)
            watchers = self._child_watchers if of_children else self._data_watchers
            watchers.setdefault(request.path, set()).add(watcher)

    def _perform(self, request: Any) -> Any:  # noqa: PLR0911, PLR0912 - by request
        """Let the tree carry out a request, and return what a server answers."""
        tree = self.tree
        if not tree.alive(self.session_id):
            self._receive(self._reconnect)
            raise ConnectionLoss
        match request:
            case Transaction(operations=steps):
                return self._all_or_none(steps)
            case Create2(path=path, data=data, flags=flags):
                path = self._create(path, data, flags)
                return path, tree.read(path)[1]
            case Create(path=path, data=data, flags=flags):
                return self._create(path, data, flags)
            case SetData(path=path, data=data, version=version):
                return tree.write(path, data, version)
            case Delete(path=path, version=version):
                tree.delete(path, version)
            case CheckVersion(path=path, version=version):
                tree.check(path, version)
            case GetData(path=path, watcher=watcher):
                data, stat = tree.read(path)
                if watcher:
                    tree.watches.add(path, Kind.DATA, self.session_id)
                return data or b"", stat
            case GetChildren(path=path, watcher=watcher):
                names = tree.children(path)
                if watcher:
                    tree.watches.add(path, Kind.CHILDREN, self.session_id)
                return names
            case Sync(path=path):
                return path
            case _Unwatching(path=path, kind=kind):
                tree.watches.remove(path, [kind], self.session_id)
            case _:
                raise NotImplementedError(f"The tree in memory does not know {request!r}.")
        return True

    def _create(self, path: str, data: bytes, flags: int) -> str:
        return self.tree.create(
            path,
            data,
            owner=self.session_id if flags & _EPHEMERAL else 0,
            sequential=bool(flags & _SEQUENTIAL),
            container=flags == _CONTAINER,
        )

    def _all_or_none(self, steps: list[Any]) -> list[Any]:
        outcomes: list[Any] = []
        try:
            with self.tree.transaction():
                for step in steps:
                    outcomes.append(self._perform(step))  # noqa: PERF401 - it may end midway
        except KazooException as error:
            before, after = len(outcomes), len(steps) - len(outcomes) - 1
            return [
                *(RolledBackError() for _ in range(before)),
                error,
                *(RuntimeInconsistency() for _ in range(after)),
            ]
        return outcomes

    def _fire(self, kind: str, path: str) -> None:
        if self.stopped:
            return
        watchers: list[Callable[[Any], None]] = []
        if kind != EventType.CHILD:
            watchers += self._data_watchers.pop(path, ())
        if kind in (EventType.CHILD, EventType.DELETED):
            watchers += self._child_watchers.pop(path, ())
        for watcher in watchers:
            guarded(watcher, WatchedEvent(kind, KeeperState.CONNECTED, path))

    # --- connections -----------------------------------------------------------------------------

    def _reconnect(self) -> None:
        if self.live:
            self._lose()
            self._connect()

    def _expire(self) -> None:
        self.tree.end_session(self.session_id)
        self._reconnect()

    def _cut(self) -> None:
        self._expires_at = time.monotonic() + self._timeout
        self._lose()

    def _lose(self) -> None:
        """Do what a client does that has lost its connection."""
        if not self.live:
            return
        self.live = False
        self.tree.watches.forget(self.session_id)
        pending, self._pending = self._pending, None
        unanswered = [] if pending is None else [pending]
        while self._queue:
            unanswered.append(self._queue.popleft()[1])
        guarded(self._changed, False, self.session_id)
        for reply in unanswered:
            reply.set_exception(ConnectionLoss())
        lost = [*self._data_watchers.values(), *self._child_watchers.values()]
        self._data_watchers, self._child_watchers = {}, {}
        for watcher in [watcher for watchers in lost for watcher in watchers]:
            guarded(watcher, WatchedEvent(EventType.NONE, KeeperState.CONNECTING, ""))

    def _connect(self) -> None:
        """Carry on the session, or begin another one where it is over."""
        if self.live:
            return
        self._expires_at = None
        if not self.tree.alive(self.session_id):
            if self.session_id:
                guarded(self._changed, False, 0)
            self.session_id = self.tree.open_session(self)
        self.live = True
        guarded(self._changed, True, self.session_id)

    def _say_goodbye(self) -> None:
        """End the session, or while cut off let it end by itself."""
        remaining = self._patience()
        if self.live:
            self.tree.end_session(self.session_id)
            self._lose()
        session_id, self.session_id = self.session_id, 0
        guarded(self._changed, False, 0)
        self._ended.set()
        if remaining is not None:
            self.tree.closed.wait(remaining)
            self.tree.end_session(session_id)
