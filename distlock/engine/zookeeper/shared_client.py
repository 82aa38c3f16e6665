"""kazoo's client on the session of the locks, for kazoo's recipes and the users' own nodes.

It has no connection. `Client` sends its requests, and passes on states and watch events. So both
have one session, and see one order of events.

*Its callbacks may block.* The connection thread hands them over to three threads: one for watches,
one for completions, one for listeners. They start with the first request or listener.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from distlock.engine import kazoo
from distlock.engine.reply import Reply
from distlock.logs.loggers import logger

from .requests import Borrowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Configuration

    from .client import Client

    #: Calls that a thread makes; None ends it.
    _Calls: TypeAlias = SimpleQueue[Callable[[], None] | None]


_ERRORS = {
    kazoo.KeeperState.AUTH_FAILED: kazoo.AuthFailedError,
    kazoo.KeeperState.EXPIRED_SESSION: kazoo.SessionExpiredError,
}


class _Handler(kazoo.SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler, whose threads start late, and which waits for no callback at the end."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._running = True  # so that kazoo queues completions
        self.completion_queue: _Calls = SimpleQueue()
        self.callback_queue: _Calls = SimpleQueue()
        self.listener_queue: _Calls = SimpleQueue()
        self._not_started = [
            (f"{name}-completions", self.completion_queue),
            (f"{name}-watches", self.callback_queue),
            (f"{name}-listeners", self.listener_queue),
        ]

    def start(self) -> None:
        while self._not_started:
            name, calls = thread = self._not_started.pop()
            try:
                threading.Thread(target=_run, args=(calls,), name=name, daemon=True).start()
            except BaseException:  # no thread could be started, for example
                self._not_started.append(thread)
                raise

    def stop(self) -> None:
        self._running = False
        for calls in (self.completion_queue, self.callback_queue, self.listener_queue):
            calls.put(None)


def _run(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        try:
            call()
        except Exception:
            logger.exception("A callback on distlock's KazooClient failed.")


class _Asked(Reply):
    """A request of the user's that has no answer yet."""

    __slots__ = ("request", "result", "watched")

    def __init__(self, client: SharedClient, request: Any, result: Any) -> None:
        super().__init__(partial(client._answered, self), None, lambda _: None, 0)
        self.request = request
        self.result = result
        #: The path that it watches, and whether the names of its children; None for no watch.
        self.watched: tuple[str, bool] | None = None
        if getattr(request, "watcher", None) is not None:
            self.watched = request.path, isinstance(request, kazoo.GetChildren | kazoo.GetChildren2)


class SharedClient(kazoo.KazooClient):  # type: ignore[misc]
    """kazoo's client, with the session of another one.

    The connection thread makes it, so that no state is missed.
    """

    state: str

    def __init__(self, client: Client, conf: Configuration) -> None:
        super().__init__(
            hosts=conf.hosts,
            timeout=conf.session_timeout,
            handler=_Handler(f"distlock-{conf.alias}"),
            default_acl=client._acl,
            # kazoo's own pauses grow to a minute.
            command_retry=kazoo.KazooRetry(max_tries=-1, max_delay=1),
            logger=client.logger,
        )
        self.set_hosts = self._refuse  # kazoo's constructor calls it
        self._stopped.clear()
        self._client = client
        self._pid = os.getpid()
        self._asked: set[_Asked] = set()
        client.shared = self
        self._session_callback(client._state)

    # --- requests --------------------------------------------------------------------------------

    def _call(self, request: Any, async_object: Any) -> bool | None:
        """Send a request from the connection thread, once there is a connection."""
        if os.getpid() != self._pid:
            self.handler.stop()  # its threads are not here: nobody would take the completion
            async_object.set_exception(
                kazoo.ConnectionClosedError(
                    "This client belongs to the process that this one was forked from. Call "
                    "distlock.kazoo_client() in each process."
                )
            )
            return False
        self.handler.start()
        asked = _Asked(self, request, async_object)
        try:
            self._asked.add(asked)
            if not self._client.stopped:
                self._client.soon(partial(self._send, asked))
        except OSError:  # closed for good in this instant
            pass
        except BaseException:  # a soft time limit landed here
            self._asked.discard(asked)
            raise
        if self._client.stopped:
            asked.set_exception(kazoo.ConnectionClosedError("The session has been closed."))
            return False
        return None

    def _send(self, asked: _Asked) -> None:
        if asked in self._asked:  # or else interrupted, or lost with the connection
            self._client.submit((Borrowed(asked.request), asked))

    def _answered(self, asked: _Asked, value: Any, error: BaseException | None) -> None:
        if isinstance(error, kazoo.NoNodeError) and asked.request.type == kazoo.Exists.type:
            value = error = None
        if asked.watched and error is None:
            path, children = asked.watched
            self._watchers(children)[path].add(asked.request.watcher)
        self._asked.discard(asked)
        if error is None:
            asked.result.set(value)
        else:
            asked.result.set_exception(error)

    def _notify_pending(self, state: str) -> None:
        error = _ERRORS.get(state, kazoo.ConnectionLoss)
        for asked in tuple(self._asked):
            asked.set_exception(error())

    def watches(self, path: str, *, children: bool) -> bool:
        """Return whether it needs the server's watch on a path; on the connection thread."""
        asked = any(one.watched == (path, children) for one in tuple(self._asked))
        return asked or bool(self._watchers(children).get(path))

    def _watchers(self, children: bool) -> dict[str, set[Any]]:
        watchers: dict[str, set[Any]]
        watchers = self._child_watchers if children else self._data_watchers
        return watchers

    # --- states ----------------------------------------------------------------------------------

    def _session_callback(self, state: str) -> None:
        super()._session_callback(state)
        if state == kazoo.KeeperState.CLOSED:
            self.handler.stop()

    def _make_state_change(self, state: str) -> None:
        """Change the state at once, and tell the listeners on their thread."""
        if state != self.state:
            self.state = state
            for listener in tuple(self.state_listeners):
                self.handler.listener_queue.put(partial(self._tell, listener, state))

    def _tell(self, listener: Callable[[str], Any], state: str) -> None:
        if listener in self.state_listeners and listener(state) is True:
            self.remove_listener(listener)

    def add_listener(self, listener: Callable[[str], Any]) -> None:
        super().add_listener(listener)
        self.handler.start()

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return self._client.credentials if self.connected else None

    # --- what the owner does ---------------------------------------------------------------------

    def start_async(self) -> Any:
        return self._live

    def start(self, timeout: float = 15) -> None:
        if not self._live.wait(timeout):
            raise self.handler.timeout_exception("Connection time-out")

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise RuntimeError(
            "The session of this KazooClient belongs to distlock: all locks of this process are in "
            "it. distlock connects it as DISTLOCK says, with AUTH, and closes it at the end of the "
            "process. Make a KazooClient of your own for another session."
        )

    stop = close = restart = add_auth_async = command = _refuse
