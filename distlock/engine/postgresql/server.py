"""Connects to a PostgreSQL server beside Django's own connections, and looks at it for `doctor`."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.db import connections

from distlock.engine.hosts import DATABASE
from distlock.engine.protocol import Finding, failure, ok, warning
from distlock.engine.timer import call_later

from .errors import STANDBY, PostgresRefused, refusal

if TYPE_CHECKING:
    from distlock.engine.protocol import Configuration

#: The default of `SESSION_TIMEOUT` (`conf.Configuration.session_timeout`), in seconds.
_USUAL_SECONDS: Final = 10
#: A transaction that lasts for longer is a warning, in seconds.
_LONG_SECONDS: Final = 600
_FACTS: Final = (
    "SELECT current_setting('server_version'), current_setting('synchronous_standby_names'), "
    "(SELECT count(*) FROM pg_stat_replication), "
    "(SELECT extract(epoch FROM max(now() - xact_start)) FROM pg_stat_activity)"
)


def alias_of(conf: Configuration) -> str:
    """Return the alias in ``DATABASES``."""
    return conf.hosts.removeprefix(DATABASE)


def where(conf: Configuration) -> str:
    """Return how messages name the server."""
    return f"PostgreSQL (database {alias_of(conf)!r})"


def parameters(conf: Configuration) -> dict[str, Any]:
    """Return the arguments of psycopg's ``connect`` for the database that Django knows."""
    database = connections[alias_of(conf)]
    found: dict[str, Any] = database.get_connection_params()
    for name in ("context", "cursor_factory", "prepare_threshold"):
        found.pop(name, None)
    if role := database.settings_dict["OPTIONS"].get("assume_role"):  # as Django's connections do
        found["options"] = f"{found.get('options', '')} -c role={role}"
    return found


class Link(socket.socket):
    """A duplicate of a connection's socket, by which any thread may shut that down.

    :ivar connection: psycopg's
    :ivar ready: whether it serves; until then libpq would wait for an answer for ever
    """

    def __init__(self, connection: psycopg.Connection[Any], seconds: float) -> None:
        super().__init__(fileno=socket.dup(connection.fileno()))
        self.connection = connection
        self.ready = False
        call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if not self.ready:
            with suppress(OSError):  # closed
                self.shutdown(socket.SHUT_RDWR)

    def pending(self) -> int:
        """Return what was read and not taken: nothing, since libpq takes all."""
        return 0

    def close(self) -> None:
        super().close()
        self.connection.close()


def connect(conf: Configuration, seconds: float) -> Link:
    """Return a new connection, which must be ready in so many seconds.

    :raises PostgresRefused: a server that is too old
    """
    arguments = {**parameters(conf), "connect_timeout": max(round(seconds), 2)}
    arguments.setdefault("application_name", f"distlock {conf.alias}")
    connection = psycopg.connect(**arguments, autocommit=True)
    try:
        if connection.info.server_version < 130_000:
            raise PostgresRefused(f"{where(conf)} is older than PostgreSQL 13.")  # noqa: TRY301
        return Link(connection, seconds)
    except BaseException:
        connection.close()
        raise


def is_direct(conf: Configuration, connection: psycopg.Connection[Any]) -> bool:
    """Return whether no pooler is in between.

    A pooler gives its clients cancel keys of its own, with numbers that are no server process's
    (PgBouncer's ``welcome_client`` in its ``proto.c``).

    :raises PostgresRefused: a standby
    """
    row = connection.execute("SELECT pg_backend_pid(), pg_is_in_recovery()").fetchone()
    if row is None or row[1]:
        raise PostgresRefused(f"{where(conf)} {STANDBY}.")
    return bool(row[0] == connection.info.backend_pid)


def limits_of(session_timeout: float) -> dict[str, str]:
    """Return settings of a connection that keep a cut-off client from blocking others for long.

    Of a request that was cut in two, the server has carried out the first part and not committed
    it, and keeps its locks of rows until it finds that the client is gone.
    """
    return {
        "lock_timeout": f"{session_timeout * 1000 / 6:.0f}",
        "tcp_keepalives_idle": f"{max(session_timeout / 3, 1):.0f}",
        "tcp_keepalives_interval": f"{max(session_timeout / 6, 1):.0f}",
        "tcp_keepalives_count": "2",
    }


def unknown_ms(conf: Configuration) -> float:
    """Return for how long a server grants nothing after it has lost its sessions.

    It may have had some of processes with another ``SESSION_TIMEOUT``.
    """
    return max(conf.session_timeout, _USUAL_SECONDS) * 1000


def servers(conf: Configuration, timeout: float) -> tuple[bool, list[Finding]]:
    """Look at the server for `doctor`."""
    subject = f"database {alias_of(conf)!r}"
    try:
        with connect(conf, timeout) as link:
            connection = link.connection
            asked = time.monotonic()
            connection.execute("SELECT 1")
            took = time.monotonic() - asked
            direct = is_direct(conf, connection)
            ((version, confirm, standbys, oldest),) = connection.execute(_FACTS).fetchall()
    except (psycopg.Error, PostgresRefused, OSError) as error:
        text = str(refusal(error, where(conf)) or error).strip().splitlines()[0]
        return False, [failure(subject, f"does not serve: {text}", "Look at DATABASES.")]
    looks = [ok(subject, f"PostgreSQL {version}, a round trip takes {took * 1000:.2f} ms")]
    if direct:
        looks.append(ok("notifications", "the server tells of releases (LISTEN)"))
    else:
        looks.append(
            warning(
                "notifications",
                "a pooler is in between: processes look for releases, up to four times a second, "
                "and lose their locks if it has no connection free for most of a session timeout",
                "Give locks a database alias of their own that goes to the server directly.",
            )
        )
    if standbys and not confirm:
        looks.append(
            warning(
                "standbys",
                "none of them confirms commits (synchronous_standby_names): a primary that is cut "
                "off may go on confirming heartbeats, and a failover may forget leases and limits",
                "Set synchronous_standby_names.",
            )
        )
    if oldest and oldest > _LONG_SECONDS:
        looks.append(
            warning(
                "long transactions",
                f"one runs for {int(oldest)} s: until it ends, old versions of rows stay, and "
                "locks become slower",
                "Look at pg_stat_activity.",
            )
        )
    return True, looks
