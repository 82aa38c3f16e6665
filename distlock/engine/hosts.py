"""Chooses the engine by ``HOSTS``, in one place, and has what all engines read of it alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, Final, cast

from django.conf import settings
from django.core.checks import Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from .protocol import Configuration, Engine, EngineClient, Settings

#: The engines, as packages beside this module; see `protocol`.
ENGINES: Final = ("zookeeper", "redis", "postgresql")

_SERVER = re.compile(r"(\[(?P<v6>[0-9A-Fa-f:.]+)\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?", re.ASCII)

#: The value of ``HOSTS`` that starts a server; see `distlock.embedded.shared`.
EMBEDDED: Final = "embedded"
#: Comes before an alias of ``DATABASES``.
DATABASE: Final = "database:"

#: Returns the message of the system checks about a wrong setting, given its text and a hint.
mistake: Final = partial(Error, id="distlock.E002")


def _is_on_sqlite(hosts: str) -> bool:
    """Return whether it is a database on SQLite, for which the embedded server stands."""
    options = settings.DATABASES.get(hosts.removeprefix(DATABASE))
    return options is not None and options.get("ENGINE", "").endswith(("sqlite3", "spatialite"))


def _package(hosts: object) -> str:
    if isinstance(hosts, str) and hosts.startswith(DATABASE):
        return "zookeeper" if _is_on_sqlite(hosts) else "postgresql"
    return "redis" if isinstance(hosts, str) and "://" in hosts else "zookeeper"


@cache  # while Python ends, nothing can be imported any more
def _module(package: str, name: str) -> Any:
    return import_module(f".{package}.{name}", __package__)


def settings_of(hosts: object) -> Settings:
    """Return what an engine says of settings with this ``HOSTS``, which may be wrong."""
    return settings_in(_package(hosts))


def settings_in(package: str) -> Settings:
    """Return what the engine of this package says of settings."""
    return cast("Settings", _module(package, "settings"))


def engine_of(hosts: object) -> Engine:
    """Return the engine for these servers; an ImportError if its library is not installed."""
    return cast("Engine", _module(_package(hosts), "engine"))


def client_of(conf: Configuration, changed: Callable[[bool, int], None]) -> EngineClient:
    """Return a new client for these settings."""
    return engine_of(conf.hosts).client(conf, changed)


def load() -> None:
    """Import the engines that the settings name, and the settings of all.

    The first lock would import them otherwise, and a child that is forked meanwhile would wait for
    that import for ever.
    """
    for package in ENGINES:
        settings_in(package)
    aliases = getattr(settings, "DISTLOCK", None)
    for options in aliases.values() if isinstance(aliases, Mapping) else ():
        # `configuration` would remember what somebody may still set.
        if isinstance(options, Mapping):
            with suppress(ImportError):  # the system checks report it
                engine_of(options.get("HOSTS"))


def joined(hosts: Any) -> str:
    """Return a ``HOSTS`` value as one text, without spaces around servers, as kazoo needs it."""
    text = hosts if isinstance(hosts, str) else ",".join(hosts)
    if text.startswith(DATABASE) and _is_on_sqlite(text):
        return EMBEDDED
    return ",".join(server.strip() for server in text.split(","))


def is_server(text: str) -> bool:
    """Return whether it is ``host:port``, or a host alone."""
    found = _SERVER.fullmatch(text.strip())
    if not found or not 0 < int(found["port"] or 1) < 65536:
        return False
    with suppress(ValueError):
        return not found["v6"] or bool(IPv6Address(found["v6"]))
    return False
