"""Reads ``HOSTS`` as URLs of Redis, and connects with redis-py.

===================================================  ==============================================
``redis://user:password@host:6379/0``                one server, and the number of its database
``rediss://host:6380/0?ssl_ca_certs=/path``          the same with TLS
``unix:///run/redis.sock?db=0``                      a server on this machine
``redis+sentinel://s1:26379,s2:26379/service/0``     the primary that the Sentinels name
===================================================  ==============================================

`settings` has the options that may follow the ``?``. A user and password before the Sentinels'
names are the primary's; ``sentinel_username`` and ``sentinel_password`` are for the Sentinels.
With ``rediss+sentinel://`` those are asked over TLS too, unless ``sentinel_ssl=false`` says not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import redis.connection
import redis.sentinel
from django.core.exceptions import ImproperlyConfigured
from redis.backoff import NoBackoff
from redis.retry import Retry

from distlock.engine import session_reaper
from distlock.text import secret

from .settings import SENTINEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlock.engine.protocol import Configuration

_PORT: Final = 26379

# redis-py has no types for these.
_connection: Any = redis.connection
_sentinel: Any = redis.sentinel


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the server is.

    :ivar options: those of redis-py's connection; without host and port for a `service`
    :ivar sentinels: host and port of each Sentinel
    :ivar sentinel_options: those of redis-py's client of a Sentinel
    :ivar service: the name of the primary, as the Sentinels know it
    :ivar shown: as messages name it, without credentials
    """

    shown: str
    options: Mapping[str, Any]
    sentinels: tuple[tuple[str, int], ...] = ()
    sentinel_options: Mapping[str, Any] = field(default_factory=dict)
    service: str = ""

    def connect(self, timeout: float) -> Any:
        """Return a connection of redis-py, greeted with RESP3; each step has `timeout` seconds."""
        options = dict(self.options)
        kind = options.pop("connection_class", _connection.Connection)
        if self.service:
            options["host"], options["port"] = self._primary(timeout)
        connection = kind(
            **options,
            protocol=3,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
        )
        connection.connect()
        return connection

    def server(self, timeout: float) -> tuple[str, int]:
        """Return host and port, or the path of a Unix socket and 0."""
        if self.service:
            return self._primary(timeout)
        if "path" in self.options:
            return self.options["path"], 0
        return self.options.get("host", "localhost"), self.options.get("port", 6379)

    def _primary(self, timeout: float) -> tuple[str, int]:
        # By default redis-py asks one that is down for seconds before it turns to the next.
        options = {
            **self.sentinel_options,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
        }
        sentinel = _sentinel.Sentinel(list(self.sentinels), sentinel_kwargs=options)
        try:
            host, port = sentinel.discover_master(self.service)
        finally:
            for one in sentinel.sentinels:
                one.close()
        return host, port


def address(hosts: str) -> Address:
    """Return what ``HOSTS`` says; a ValueError says what is wrong with it."""
    found = SENTINEL.fullmatch(hosts)
    if found is None:
        options = _options(hosts)
        return Address(options=options, shown=_shown(options))
    at = f"{found['credentials']}@" if found["credentials"] else ""
    options = _options(f"{found['scheme']}://{at}{found['service']}{found['rest']}")
    del options["host"]
    own = {name: options.pop(name) for name in list(options) if name.startswith("sentinel_")}
    sentinel_options = {name.removeprefix("sentinel_"): value for name, value in own.items()}
    if sentinel_options.pop("ssl", "true") == "true" and found["scheme"] == "rediss":
        tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
        sentinel_options |= {"ssl": True, **tls}
    sentinels = tuple(_host_and_port(one) for one in found["sentinels"].split(","))
    shown = ",".join(f"{host}:{port}" for host, port in sentinels)
    service = unquote(found["service"])
    return Address(
        options=options,
        sentinels=sentinels,
        sentinel_options=sentinel_options,
        service=service,
        shown=f"{service} of the Sentinels {shown}",
    )


def _options(url: str) -> dict[str, Any]:
    options: dict[str, Any] = _connection.parse_url(url)
    if url.startswith("rediss"):  # redis-py 5 checks no name by itself
        options.setdefault("ssl_check_hostname", options.get("ssl_cert_reqs") != "none")
    return options


def where(conf: Configuration) -> str:
    """Return how messages name the server."""
    return f"Redis at {address(conf.hosts).shown}"


def _shown(options: Mapping[str, Any]) -> str:
    if "path" in options:
        return str(options["path"])
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host_and_port(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition(":")
    return (host.strip("[]"), int(port)) if host else (server.strip("[]"), _PORT)


# --- TLS ---------------------------------------------------------------------------------------

#: The options of the setting ``TLS``, which the session reaper knows → those of redis-py.
_FILES: Final = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
_PASSWORD: Final = {"key_password": "ssl_password"}


@secret
def tls_of(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return redis-py's options as those of the setting ``TLS``; None without TLS."""
    if "ssl_check_hostname" not in options:  # `address` sets it
        return None
    names = {**_FILES, **_PASSWORD}
    tls = {name: options[theirs] for name, theirs in names.items() if options.get(theirs)}
    tls["verify"] = options.get("ssl_cert_reqs") != "none"
    tls["check_hostname"] = tls["verify"] and options["ssl_check_hostname"]
    return tls


@secret
def check_files(conf: Configuration) -> None:
    """Read the files that the URL names; raise ImproperlyConfigured if one cannot be used."""
    options = address(conf.hosts).options
    tls = tls_of(options)
    if tls is None:
        return
    try:
        session_reaper.tls_context(tls)
    except OSError as error:  # SSLError is one
        named = [f"{name} {options[name]}" for name in _FILES.values() if name in options]
        raise ImproperlyConfigured(
            f"DISTLOCK[{conf.alias!r}]['HOSTS'] cannot be used: {error}. Check the files "
            f"({', '.join(named)}) and ssl_password."
        ) from error
