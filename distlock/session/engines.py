"""Finds the engine for the servers in ``HOSTS``: its client, and how to name them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from django.conf import settings

from distlock.conf.rules import REDIS, ZOOKEEPER, is_redis
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
