"""Finds mistakes in a URL of Redis, without redis-py, which may not be installed.

The forms are in the table of `address`. redis-py itself takes database 0 where it finds no number.
"""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import parse_qs

#: ``redis+sentinel://``, or the same with TLS.
SENTINEL: Final = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://"
    r"((?P<credentials>[^@/]*)@)?(?P<sentinels>[^@/?]+)/(?P<service>[^/?]+)(?P<rest>(/\d+)?(\?.*)?)"
)
_SERVER = re.compile(r"(\[(?P<v6>[0-9A-Fa-f:.]+)\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?", re.ASCII)
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


def url_error(url: str) -> str | None:
    """Return the mistake in a URL, in words that show no password, or None."""
    scheme, _, rest = url.partition("://")
    if scheme not in _KNOWN:
        return "is no URL of Redis: it begins with another word than redis, rediss or unix"
    place, _, query = rest.partition("?")
    server, _, path = place.partition("/")
    server, path = server.rpartition("@")[2], path.strip("/")
    if is_sentinel(url):
        found = SENTINEL.fullmatch(url)
        fits = found is not None and all(map(is_server, found["sentinels"].split(",")))
        form = f"{scheme}://host:26379,host:26379/service/0"
    elif scheme == "unix":
        fits, form = bool(path), "unix:///path/of/the/socket?db=0"
    else:
        fits = (not server or is_server(server)) and (not path or _is_number(path))
        form = f"{scheme}://host:6379/0, with a port from 1 to 65535; several servers take Sentinel"
    if not fits or "#" in place:
        return f"is not of the form {form}"
    return _query_error(scheme, query)


def is_sentinel(url: object) -> bool:
    """Return whether Sentinels name the server."""
    return isinstance(url, str) and url.partition("://")[0].endswith("+sentinel")


def is_encrypted(url: str) -> bool:
    """Return whether nobody on the network can read the connection."""
    return url.startswith(("rediss", "unix"))


def _query_error(scheme: str, query: str) -> str | None:
    options, known = parse_qs(query, keep_blank_values=True), _KNOWN[scheme]
    for name, values in options.items():
        if name not in known:
            # The end of a password that is not encoded may stand there.
            shown = f" {name!r}" if name.isidentifier() and "@" not in query else ""
            return f"has an unknown option{shown} after the ?; known are {', '.join(known)}"
        if name == "db" and not _is_number(values[0]):
            return "has no number as database"
        if name in _VALUES and values[0] not in _VALUES[name]:
            return f"has a wrong value for {name}; right are {', '.join(_VALUES[name])}"
    return None


def is_server(text: str) -> bool:
    """Return whether it is ``host:port``, or a host alone."""
    found = _SERVER.fullmatch(text.strip())
    if not found or not 0 < int(found["port"] or 1) < 65536:
        return False
    with suppress(ValueError):
        return not found["v6"] or bool(IPv6Address(found["v6"]))
    return False


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
