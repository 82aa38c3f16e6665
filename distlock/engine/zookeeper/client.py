"""kazoo's client, bent to what `session` needs; only `connection` and `requests` know kazoo, too.

TLS is ours: verified in full unless told otherwise, read from its files once, and its secrets not
known to kazoo.
"""

from __future__ import annotations

import importlib
import logging
import re
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured

from distlock.engine import kazoo
from distlock.engine.deadline import SessionDeadline
from distlock.engine.guard import guarded
from distlock.engine.hosts import EMBEDDED
from distlock.engine.serving import Submitting, no_answer
from distlock.jute import EVENT
from distlock.keys.limits import CONNECTIONS
from distlock.logs.loggers import Outage, safe
from distlock.text import secret

from .connection import UNREACHED, Connection
from .ensemble import hosts, tls_context
from .handler import Handler
from .requests import Requests, access_list

if TYPE_CHECKING:
    from distlock.engine.protocol import Configuration


def _worth_logging(record: logging.LogRecord) -> bool:
    """Drop records with AUTH, or with the session password, which nobody else needs to see.

    And the traceback that kazoo writes at each try to connect: `Connection` writes it once.
    """
    message, args = str(record.msg), record.args if isinstance(record.args, tuple) else ()
    return not (
        "passwd" in message
        or message.startswith("Unhandled exception in connection loop")
        or any(isinstance(a, kazoo.Auth | kazoo.Connect | kazoo.SASL) for a in args)
    )


def _in_detail(record: logging.LogRecord) -> bool:
    """Make kazoo's messages DEBUG, unless somebody has given its logger a level of its own.

    kazoo warns of each try to connect, several a second. `Outage` logs what an operator needs.
    """
    if _logger.level == logging.NOTSET and logging.DEBUG < record.levelno < logging.ERROR:
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return _logger.isEnabledFor(record.levelno)


#: By their numbers, the events of watches, for watchers that know their path.
_EVENTS: Final = {
    number: kazoo.WatchedEvent(kind, None, None) for number, kind in kazoo.EVENT_TYPE_MAP.items()
}
_DELETED, _CHILDREN_CHANGED = kazoo.DELETED_EVENT, kazoo.CHILD_EVENT
#: kazoo's own messages about connections.
_logger = safe(logging.getLogger("distlock.kazoo"), _worth_logging, _in_detail)


class Client(Submitting, kazoo.KazooClient, Requests):  # type: ignore[misc]
    """One connection that keeps itself up, and its session; `EngineClient` tells of its methods."""

    def __init__(self, conf: Configuration, changed: Callable[[bool, int], None]) -> None:
        servers = conf.hosts.partition("/")[0].count(",") + 1
        # So that one silent server, such as one that is just starting, leaves time for another try.
        per_server = max(conf.connect_timeout / (servers + 1), 0.2)
        kazoo.KazooClient.__init__(
            self,
            hosts=conf.hosts,
            timeout=conf.session_timeout,
            handler=Handler(f"distlock-{conf.alias}", per_server, tls_context(conf)),
            logger=_logger,
            auth_data=[pair for pair in conf.auth if pair[0] != "sasl"],
            use_ssl=conf.tls is not None,
        )
        self._connection = Connection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=sasl_options(conf)
        )
        self._connection.connect_timeout = per_server
        # A server that comes back is found while the lease lasts, and within a second at most.
        self._connection.longest_pause = min(conf.session_timeout / 20, 0.75)
        self.steps = deque()
        self.deadline = SessionDeadline()
        self._acl = access_list(conf)
        self._conf = conf
        if conf.hosts == EMBEDDED:  # not on the connection thread, as the codec of `serving`
            importlib.import_module("distlock.embedded.shared")
        self._changed = changed
        self.outage = Outage(f"ZooKeeper at {conf.hosts}")
        #: Whether it will never connect again.
        self.stopped = False

    def _session_callback(self, state: str) -> None:
        """Report a loss before kazoo fails what is pending, and a connection when it is usable."""
        if state == self._state:
            return
        connected = state in (kazoo.KeeperState.CONNECTED, kazoo.KeeperState.CONNECTED_RO)
        was_connected = self.connected
        if was_connected:
            self._connection.lost_at = time.monotonic()
        if was_connected or state in kazoo.CLOSED_STATES:
            self.disconnected()
            guarded(self._changed, False, 0 if state in kazoo.CLOSED_STATES else self.session_id)
        if self.shared is not None:
            guarded(self.shared._session_callback, state)
        super()._session_callback(state)
        if connected:
            guarded(self._changed, True, self.session_id)

    def disconnected(self) -> None:
        # The connection thread calls it when the connection is lost, and after each round of tries.
        if not self._stopped.is_set():
            self.outage.note(self._connection.reason)

    def connect(self) -> None:
        try:
            self.start_async()
        except BaseException:  # no thread could be started, for example
            self._stop()
            connection = self._connection
            if connection.connection_stopped.is_set():  # or else its thread closes the sockets
                connection.close()
            raise

    def before_connecting(self) -> None:
        # The connection thread calls it before each round of tries. A request that was queued in
        # the instant of the loss must not wait for a connection.
        if not self._stopped.is_set():  # or else the good-bye is queued
            self._notify_pending(kazoo.KeeperState.CONNECTING)
        self.set_hosts(hosts(self._conf))

    @property
    def session_id(self) -> int:
        """The id that the server gave to the session of the moment, 0 before the first."""
        return self._session_id or 0

    @property
    def credentials(self) -> tuple[int, bytes]:
        return self.session_id, self._session_passwd

    @property
    def session_timeout(self) -> float:
        return float(self._connection.negotiated_timeout)

    @property
    def trouble(self) -> BaseException | None:
        trouble: BaseException | None = self._connection.trouble
        return trouble

    def pass_on(self, event: bytes, offset: int) -> None:
        # Calls the watchers of an event, ours and the users'; on the connection thread.
        if self.stopped:
            return
        number, _, length = EVENT.unpack_from(event, offset)
        path = event[offset + EVENT.size :][:length].decode()
        watchers: set[Callable[[Any], None]] = set()
        if number != _CHILDREN_CHANGED:
            watchers |= self._data_watchers.pop(path, set())
        if number in (_DELETED, _CHILDREN_CHANGED):
            watchers |= self._child_watchers.pop(path, set())
        for watcher in watchers:
            guarded(watcher, _EVENTS[number])
        shared = self.shared
        if shared is not None and (shared._data_watchers or shared._child_watchers):
            shared._connection._read_watch_event(event, offset)

    def explain(self, error: BaseException | None, away: str = "") -> str:
        return explain(error, self._conf, away)

    def say_goodbye(self, seconds: float) -> bool:
        # kazoo's `stop` may take ten seconds and more.
        self._stop()
        if (routine := self._connection._connection_routine) is not None:
            routine.join(seconds)
        return bool(self._connection.closed_session)

    def _stop(self) -> None:
        self.stopped = True
        self._stopped.set()
        self._queue.append((kazoo.CloseInstance, None))
        with suppress(OSError):  # it is awake, and has said good-bye already
            self._connection.wake()


@secret
def sasl_options(conf: Configuration) -> dict[str, str] | None:
    """Return kazoo's options for credentials of the scheme ``sasl``, None without any."""
    for scheme, credential in conf.auth:
        if scheme == "sasl":
            username, _, password = credential.partition(":")
            return {"mechanism": "DIGEST-MD5", "username": username, "password": password}
    return None


def explain(  # noqa: PLR0911 - by cause
    error: BaseException | None, conf: Configuration, away: str = ""
) -> str:
    """Return what a user should read; see `EngineClient`."""
    where = f"ZooKeeper at {conf.hosts}"
    match error:
        case kazoo.NoAuthError():
            return (
                f"{where} refused the request under {conf.namespace}: no permission. "
                "Check AUTH and ACL, and who created the parent nodes; "
                "`manage.py distlock doctor` tells what this user may do."
            )
        case kazoo.InvalidACLError():
            return (
                f'{where} refused the ACL. ACL "creator" needs AUTH or a client certificate; '
                "a list needs known schemes."
            )
        case kazoo.AuthFailedError():
            return f"{where} refused the credentials in AUTH."
        case ssl.SSLError():
            return (
                f"TLS with {where} failed: {error}. Check TLS and the host names in HOSTS; the "
                "server may also want a client certificate (`cert` and `key`)."
            )
        case ImproperlyConfigured():
            return str(error)
        case kazoo.UnimplementedError():
            return f"{where} is too old: distlock needs ZooKeeper 3.5.3 or newer."
        case None:
            text = (
                f"{no_answer(where, away)} Is it running (`manage.py distlock server` starts one), "
                "and reachable?"
            )
            if re.search(r":6379\b", conf.hosts):
                return f'{text} Port 6379 is that of Redis: "redis://{conf.hosts}".'
            if away in UNREACHED:
                return text
            return (
                f"{text} A server also turns clients away in silence beyond its maxClientCnxns "
                f"({CONNECTIONS} per address by default)."
            )
        case _:
            return f"{where} could not serve the request: {error!r}."
