"""Finds mistakes in a URL of Redis, without redis-py, which may not be installed.

The forms are in the table of `address`. redis-py itself takes database 0 where it finds no number.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qs, urlsplit

#: ``redis+sentinel://``, or the same with TLS.
SENTINEL: Final = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://"
    r"((?P<credentials>[^@/]*)@)?(?P<sentinels>[^@/?]+)/(?P<service>[^/?]+)(?P<rest>(/\d+)?(\?.*)?)"
)
_OPTIONS: Final = ("db", "username", "password", "client_name")
_TLS_OPTIONS: Final = (
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")
#: What may stand after the ``?``.
_KNOWN: Final = {
    "redis": _OPTIONS,
    "rediss": (*_OPTIONS, *_TLS_OPTIONS),
    "unix": _OPTIONS,
    "redis+sentinel": (*_OPTIONS, *_SENTINEL_OPTIONS),
    "rediss+sentinel": (*_OPTIONS, *_TLS_OPTIONS, *_SENTINEL_OPTIONS, "sentinel_ssl"),
}
#: The values of those that take no other.
_VALUES: Final = {
    "sentinel_ssl": ("true", "false"),
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "false"),
}


def url_error(url: str) -> str | None:  # noqa: PLR0911 - by mistake
    """Return the mistake in a URL, in words that show no password, or None."""
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        return "is no URL"
    if parts.scheme not in _KNOWN:
        return "is no URL of Redis: it begins with another word than redis, rediss or unix"
    servers, path = parts.netloc.rpartition("@")[2], parts.path.strip("/")
    database = options.get("db", ["0"])[0]
    if is_sentinel(url):
        if SENTINEL.fullmatch(url) is None:
            return f"has not the form {parts.scheme}://host:port,host:port/service/number"
    elif parts.scheme == "unix":
        servers = ""
        if not path:
            return "names no socket: a path is missing"
    elif "," in servers:
        return "names several servers, which takes Sentinel"
    else:
        database = path or database
    if servers and not all(map(_is_server, servers.split(","))):
        return "has a server without a name, or with no number from 1 to 65535 as port"
    if not (database.isascii() and database.isdecimal()):
        return "has no number as database"
    return _option_error(options, _KNOWN[parts.scheme], parts.query)


def is_sentinel(url: object) -> bool:
    """Return whether Sentinels name the server."""
    return isinstance(url, str) and url.partition("://")[0].endswith("+sentinel")


def is_encrypted(url: str) -> bool:
    """Return whether nobody on the network can read the connection."""
    return url.startswith(("rediss", "unix"))


def _option_error(options: dict[str, list[str]], known: tuple[str, ...], query: str) -> str | None:
    for name, values in options.items():
        if name not in known:
            # The end of a password that is not encoded may stand there.
            shown = f" {name!r}" if name.isidentifier() and "@" not in query else ""
            return f"has an unknown option{shown} after the ?; known are {', '.join(known)}"
        if name in _VALUES and values[0] not in _VALUES[name]:
            return f"has a wrong value for {name}; right are {', '.join(_VALUES[name])}"
    return None


def _is_server(server: str) -> bool:
    """Return whether it is ``host:port``, or a host alone."""
    with suppress(ValueError):
        parts = urlsplit(f"//{server.strip()}")
        return bool(parts.hostname) and parts.port != 0
    return False
