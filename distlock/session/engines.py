"""Finds the engine for the servers in ``HOSTS``: its client, their names, the end of a session."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.views.decorators.debug import sensitive_variables

from distlock.conf.rules import REDIS, ZOOKEEPER, is_redis
from distlock.engine import session_reaper
from distlock.engine.zookeeper import ensemble
from distlock.engine.zookeeper.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.conf import Configuration
    from distlock.engine.protocol import EngineClient


def client_of(conf: Configuration, changed: Callable[[bool, int], None]) -> EngineClient:
    """Return a new client for these settings."""
    if conf.engine == ZOOKEEPER:
        return Client(conf, changed)
    client: EngineClient = import_module(f"{conf.engine}.client").RedisClient(conf, changed)
    return client


def shown(conf: Configuration) -> str:
    """Return ``HOSTS`` without credentials."""
    if conf.engine == ZOOKEEPER:
        return conf.hosts
    text: str = import_module(f"{REDIS}.address").address(conf.hosts).shown
    return text


def load() -> None:
    """Import the engines that the settings name.

    The first lock would import them otherwise, and a child that is forked meanwhile would wait for
    that import for ever.
    """
    aliases = getattr(settings, "DISTLOCK", None)
    for options in aliases.values() if isinstance(aliases, Mapping) else ():
        # `configuration` would remember what somebody may still set.
        if isinstance(options, Mapping) and is_redis(options):
            with suppress(ImportError):  # the system checks report it
                import_module(f"{REDIS}.client")


@sensitive_variables()  # error mails show variables
def report(conf: Configuration, session_id: int, password: bytes) -> dict[str, Any]:
    """Return the facts that `session_reaper.end_session` needs to end a session."""
    if conf.engine == REDIS:
        found: dict[str, Any] = import_module(f"{REDIS}.requests").report(
            conf, session_id, password
        )
        return found
    return {
        "alias": conf.alias,
        "session": session_id,
        "password": password.hex(),
        "timeout": conf.session_timeout,
        "servers": [ensemble.host_and_port(server) for server in ensemble.servers(conf)],
        "tls": conf.tls and dict(conf.tls),
        # No SASL: by default, a server lets any client that has the password end a session.
        "auth": [pair for pair in conf.auth if pair[0] != "sasl"],
    }


def end_session(conf: Configuration, session_id: int, password: bytes, timeout: float) -> bool:
    """End a dead process's session on the server, which frees its locks, in some 10 ms.

    :param timeout: seconds to keep trying while the servers are away
    :return: whether the session was alive
    :raises OSError: no server could be asked, or none accepted the credentials
    """
    return session_reaper.end_session(report(conf, session_id, password), timeout)
