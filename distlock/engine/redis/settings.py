"""Says which settings Redis has, without redis-py, which may not be installed.

The forms of its URLs are in the table of `address`. redis-py itself takes database 0 where it finds
no number. `distlock.engine.protocol.Settings` tells of the names without an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import parse_qs

from django.core.checks import CheckMessage
from django.core.checks import Warning as CheckWarning

from distlock.engine.hosts import is_server, mistake

NAME: Final = "Redis"
EXAMPLE: Final = (
    "a URL of Redis such as "
    '"redis://127.0.0.1:6379/0" or "redis+sentinel://host:26379,host:26379/service/0"'
)
RULES: Final[Mapping[str, tuple[Any, str]]] = {
    "REPLICAS": (lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0, "a number")
}
UNKNOWN: Final[Mapping[str, str]] = {
    "AUTH": 'Write the user and the password into HOSTS: "redis://user:password@host".',
    "ACL": "Redis knows no ACL of single locks. A user of its own, with a password and the keys of "
    "NAMESPACE, keeps others away.",
    "TLS": 'Write "rediss://" in HOSTS, with options such as "?ssl_ca_certs=/path".',
    "STRICT": "A Redis server proves each session itself.",
}

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


def mistake_in(hosts: Any) -> str | None:
    scheme, _, rest = hosts.partition("://")
    if scheme not in _KNOWN:
        return "is no URL of Redis: it begins with another word than redis, rediss or unix"
    place, _, query = rest.partition("?")
    server, _, path = place.partition("/")
    server, path = server.rpartition("@")[2], path.strip("/")
    if is_sentinel(hosts):
        found = SENTINEL.fullmatch(hosts)
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


def problems(where: str, options: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    if find_spec("hiredis") is None:
        yield mistake(
            f"{where}['HOSTS'] is a URL of Redis, but redis-py with hiredis is not installed.",
            "Type: pip install 'redis[hiredis]'",
        )
    if is_sentinel(options["HOSTS"]) and not options.get("REPLICAS"):
        yield CheckWarning(
            f"{where} uses Sentinel without REPLICAS: a failover may forget a lock, a lease may "
            "have two owners for the rest of its time, and a primary that is cut off may go on "
            "confirming heartbeats.",
            "Set REPLICAS to the number of replicas that must have a lock before it counts, such "
            "as 1.",
            id="distlock.W006",
        )


def problems_in_deployment(where: str, options: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    if not options["HOSTS"].startswith(("rediss", "unix")):
        yield CheckWarning(
            f"{where}: the connection to Redis is not encrypted.",
            'Write "rediss://" in HOSTS, or "rediss+sentinel://".',
            id="distlock.W004",
        )


def chroot(hosts: str) -> str:
    return ""


def is_sentinel(url: str) -> bool:
    """Return whether Sentinels name the server."""
    return url.partition("://")[0].endswith("+sentinel")


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


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
