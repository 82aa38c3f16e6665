"""kazoo's client, bent to what `session` needs. With `requests`, the only file that knows kazoo.

- *Everything happens on the connection thread.* Requests are completed by callbacks that kazoo's
  connection thread runs at once and in the order of the server's answers, and so are watches.
  Callbacks never block, so there are no worker threads, no locks around the line of waiters, and
  no hop between an answer and its consequence.
- *Reconnection backs off to one second*, and one unreachable server does not use up the time of the
  others.
- *The negotiated session timeout is kept*; kazoo only logs it.
- *TLS is ours*: verified in full unless told otherwise, read from its files once, and its secrets
  not known to kazoo.

`Session` uses of a client only what has a docstring here, so that another one can take its place.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.serialization import SASL, Auth, CloseInstance, Connect
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from .credentials import sasl_options, tls_context
from .requests import Requests, access_list

if TYPE_CHECKING:
    from .conf import Configuration

# The first getaddrinfo() imports this codec. On the connection thread that would leave the import
# lock taken in a child forked meanwhile, which could then never connect.
importlib.import_module("encodings.idna")

logger = logging.getLogger("distlock")


def _tells_no_secret(record: logging.LogRecord) -> bool:
    """Drop what kazoo logs of AUTH and of the session password, which is as good as it."""
    args = record.args if isinstance(record.args, tuple) else ()
    return "passwd" not in str(record.msg) and not any(
        isinstance(a, Auth | Connect | SASL) for a in args
    )


#: kazoo's own messages about connections.
_logger = logging.getLogger("distlock.kazoo")
_logger.addFilter(_tells_no_secret)

#: Called once with (value, None) or (None, error), on the connection thread.
Done = Callable[[Any, BaseException | None], None]

NoNode: Final = NoNodeError
NodeExists: Final = NodeExistsError
NoAuth: Final = NoAuthError
BadVersion: Final = BadVersionError
#: The answer is not known: the request may have been carried out or not.
ConnectionLost: Final = ConnectionLoss | ConnectionClosedError
#: The session is over, with all its nodes.
SessionOver: Final = SessionExpiredError
#: What waiting for a future or an await raises; one class since Python 3.11.
TIMED_OUT: Final = (TimeoutError, concurrent.futures.TimeoutError, asyncio.TimeoutError)
#: For a request that cannot be sent.
NotConnected: Final = ConnectionLoss


class Reply:
    """Where the outcome of one request goes; stands in for kazoo's ``AsyncResult``.

    kazoo may set one twice, and loses those that are queued in the instant in which a session ends:
    `Session` fails these itself, and a value that comes later still goes to `orphan`.
    """

    __slots__ = ("_done", "_orphan", "_settled", "session_id")

    def __init__(
        self,
        done: Done,
        orphan: Callable[[Any], None] | None,
        settled: Callable[[Reply], None],
        session_id: int,
    ) -> None:
        self._done: Done | None = done
        self._orphan = orphan
        self._settled = settled
        #: The session in which the request was sent.
        self.session_id = session_id

    def set(self, value: Any = None) -> None:
        """Take the server's answer."""
        if self._done is None and self._orphan is not None:
            guarded(self._orphan, value)
        self._settle(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Take the server's refusal, or the news that there will be no answer."""
        self._settle(None, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        done, self._done = self._done, None
        self._settled(self)
        if done is not None:
            guarded(done, value, error)


def failure(outcomes: list[Any]) -> Exception | None:
    """Return the error of the step for which a transaction was not carried out."""
    along = RolledBackError | RuntimeInconsistency
    errors = (one for one in outcomes if isinstance(one, Exception) and not isinstance(one, along))
    return next(errors, None)


def guarded(step: Callable[..., None], *args: Any) -> None:
    """Run a step on the connection thread, which no mistake of ours may end."""
    try:
        step(*args)
    except Exception:
        logger.exception("A step of the waiting line failed: this is a bug in distlock.")


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads without its two worker threads: callbacks run on the connection thread."""

    def __init__(self, name: str, connect_timeout: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._name = name
        self._connect_timeout = connect_timeout
        self._tls = tls

    def start(self) -> None:
        """Start nothing: `_running` stays false, which makes kazoo run completions in place."""

    def stop(self) -> None:
        """Stop nothing."""

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        # A burst of requests fills it. A blocked connection thread would wait for itself, for ever.
        reading, waking = super().create_socket_pair()
        waking.setblocking(False)
        return reading, waking

    def dispatch_callback(self, callback: Any) -> None:
        guarded(callback.func, *callback.args)

    def create_connection(
        self, address: Any, hostname: str, timeout: float, **options: Any
    ) -> socket.socket:
        # kazoo would give one dead server the whole session timeout.
        timeout = min(timeout, self._connect_timeout)
        if self._tls is None:
            connected: socket.socket = super().create_connection(address, hostname, timeout)
            return connected
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap_socket(plain, server_hostname=hostname)
        finally:
            plain.close()  # it has been detached where all went well

    def select(
        self, readers: Any, writers: Any, errors: Any, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # What has been decrypted already does not show on the socket, and kazoo's loop forgets it.
        ready = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        if ready:
            return ready, [], []
        # kazoo's makes an epoll object each time, which is half of what a request costs here.
        # Unlike select(), poll() knows no greatest file descriptor.
        waiting = select.poll()
        for one in writers:
            waiting.register(one, select.POLLOUT)
        for one in readers:  # nothing of kazoo's waits for both
            waiting.register(one, select.POLLIN)
        happened = dict(waiting.poll(None if timeout is None else timeout * 1000))
        return (
            [one for one in readers if one.fileno() in happened],
            [one for one in writers if one.fileno() in happened],
            [],
        )

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(
            target=func, args=args, kwargs=kwargs, name=self._name, daemon=True
        )
        thread.start()
        return thread


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which keeps the negotiated timeout and ends without a traceback."""

    negotiated_timeout = 0.0
    connect_timeout = 1.0
    ended = False
    #: When the last connection was lost.
    lost_at = 0.0
    #: Why the last try to connect failed, where trying again will not help. kazoo forgets it.
    trouble: ssl.SSLError | AuthFailedError | None = None

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        except InterruptedError:
            logger.debug("The connection was closed while it waited to reconnect.")
        finally:
            self.ended = True
            self.close()

    def _send_request(self, *args: Any) -> None:
        steps = self.client.steps
        while steps:
            guarded(steps.popleft())
        super()._send_request(*args)
        # kazoo sends one request for each byte it is woken with; one may have found no room.
        if self.client._queue:
            self.wake()

    def wake(self) -> None:
        """See to it that the connection thread looks at the queue; from any thread."""
        waking = self._write_sock
        if waking is None:
            raise ConnectionError("The connection has been closed.")
        with suppress(BlockingIOError):  # full, and so awake
            waking.send(b"\0")

    def _connect(self, *args: Any) -> Any:
        try:
            timeouts = super()._connect(*args)
        except (ConnectionDropped, AuthFailedError) as error:
            cause = error.__context__ if isinstance(error, ConnectionDropped) else error
            # It stays when the next address refuses: "localhost" has two, and an ensemble three.
            if isinstance(cause, ssl.SSLError | AuthFailedError):
                self.trouble = cause
            raise
        self.trouble = None
        return timeouts

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            result = super()._invoke(min(timeout, self.connect_timeout), request, xid)
        except KazooTimeoutError:
            # Behind a link that carries only our side, each of these requests renews the session
            # on the server, and with it locks that nobody can use. Let it expire.
            if time.monotonic() - self.lost_at > self.negotiated_timeout > 0:
                raise SessionExpiredError from None
            raise
        self.negotiated_timeout = result[0].time_out / 1000
        return result


class Client(KazooClient, Requests):  # type: ignore[misc]
    """One connection that keeps itself up, and its session of the moment.

    :param changed: called on the connection thread when a connection came (True) or went (False)
    """

    def __init__(self, conf: Configuration, changed: Callable[[bool], None]) -> None:
        servers = conf.hosts.partition("/")[0].count(",") + 1
        # So that one silent server, such as one that is just starting, leaves time for another try.
        per_server = max(conf.connect_timeout / (servers + 1), 0.2)
        KazooClient.__init__(
            self,
            hosts=conf.hosts,
            timeout=conf.session_timeout,
            handler=_Handler(f"distlock-{conf.alias}", per_server, tls_context(conf)),
            # A server that comes back is found while the lease lasts, and within a second at most.
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=0.05,
                backoff=2,
                max_delay=min(conf.session_timeout / 20, 0.75),
                max_jitter=0.3,
            ),
            logger=_logger,
            auth_data=[pair for pair in conf.auth if pair[0] != "sasl"],
            use_ssl=conf.tls is not None,
        )
        self._connection = _Connection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=sasl_options(conf)
        )
        self._connection.connect_timeout = per_server
        #: What is to be called on the connection thread.
        self.steps: deque[Callable[[], None]] = deque()
        self._acl = access_list(conf)
        self._changed = changed
        self.add_listener(self._state_changed)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._connection.lost_at = time.monotonic()
        self._changed(state == KazooState.CONNECTED)

    def connect(self) -> None:
        """Begin to connect, and stay connected until `say_goodbye`; does not block."""
        self.start_async()

    @property
    def session_id(self) -> int:
        """The id that the server gave to the session of the moment, 0 before the first."""
        return self._session_id or 0

    @property
    def credentials(self) -> tuple[int, bytes]:
        """The session's id and its password: whoever has both can carry it on, and end it."""
        return self.session_id, self._session_passwd

    @property
    def server(self) -> str:
        """Host and port of the server that it is connected to, empty without a connection."""
        connected = self._connection._socket
        try:
            host, port = connected.getpeername()[:2]
        except (AttributeError, OSError):  # there is none, or it has just been closed
            return ""
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server granted, in seconds; 0 before the first session."""
        return float(self._connection.negotiated_timeout)

    @property
    def live(self) -> bool:
        """Whether there is a connection; kazoo may be late to notice that it is dead."""
        return bool(self._live.is_set())

    @property
    def stopped(self) -> bool:
        """Whether it will never connect again."""
        # Thread.is_alive() would do, but declares a living thread dead when a signal's exception
        # lands inside it (CPython, bpo-45274).
        return self._stopped.is_set() or self._connection.ended

    @property
    def trouble(self) -> BaseException | None:
        """What keeps it from connecting, as far as the reason is known."""
        trouble: BaseException | None = self._connection.trouble
        return trouble

    def submit(self, request: Any, reply: Reply) -> None:
        """Queue a request and wake the connection thread; never blocks.

        kazoo's own ``_call`` catches every exception while it wakes the thread, a soft time limit
        or Ctrl-C too, and leaves the request in the queue without a wake-up. One wake-up too many
        is harmless, so a second one makes good for an interrupted first.
        """
        try:
            self._queue.append((request, reply))
            self._connection.wake()
        except BaseException:
            self._connection.wake()
            raise

    def soon(self, step: Callable[[], None]) -> None:
        """Call `step` on the connection thread while there is a connection; never blocks."""
        self.steps.append(step)
        self._connection.wake()

    def drop(self) -> None:
        """Close a connection that gives no answer, and connect anew; from any thread."""
        connected = self._connection._socket
        if connected is not None:
            with suppress(OSError):
                # An SSLSocket's own would make it a plain one, in which others may be sending.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def forget_watchers(self, path: str, *, children: bool = False) -> None:
        """Drop the watch callbacks on `path`, once the server has removed its watches."""
        (self._child_watchers if children else self._data_watchers).pop(path, None)

    def say_goodbye(self, seconds: float) -> None:
        """End the session on the server. kazoo's ``stop`` may take ten seconds and more."""
        self._stopped.set()
        self._queue.append((CloseInstance, None))
        with suppress(OSError):  # it is awake, and has said good-bye already
            self._connection.wake()
        self._connection._connection_routine.join(seconds)


def explain(error: BaseException | None, conf: Configuration) -> str:  # noqa: PLR0911 - by cause
    """Return what a user should read when the server answered `error`, or None for nothing."""
    where = f"ZooKeeper at {conf.hosts}"
    match error:
        case NoAuthError():
            return (
                f"{where} refused the request under {conf.namespace}: no permission. "
                "Check AUTH and ACL, and who created the parent nodes."
            )
        case InvalidACLError():
            return (
                f'{where} refused the ACL. ACL "creator" needs AUTH or a client certificate; '
                "a list needs known schemes."
            )
        case AuthFailedError():
            return f"{where} refused the credentials in AUTH."
        case ssl.SSLError():
            return (
                f"TLS with {where} failed: {error}. Check TLS and the host names in HOSTS; the "
                "server may also want a client certificate (`cert` and `key`)."
            )
        case UnimplementedError():
            return f"{where} is too old: container nodes need ZooKeeper 3.5.3 or newer."
        case None:
            return (
                f"{where} did not answer in time. Is it running (`manage.py distlock server` "
                "starts one), and reachable? A server also turns clients away in silence beyond "
                "its maxClientCnxns (60 per address by default)."
            )
        case _:
            return f"{where} could not serve the request: {error!r}."
