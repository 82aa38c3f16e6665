"""Makes the client of a session: of the engine for the servers in ``HOSTS``."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from distlock.conf import configuration
from distlock.engine.zookeeper.client import Client
from distlock.rules import ZOOKEEPER

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


def load() -> None:
    """Import the engines that the settings name.

    The first lock would import them otherwise, and a child that is forked meanwhile would wait for
    that import for ever.
    """
    for alias in getattr(settings, "DISTLOCK", ()):
        with suppress(ImproperlyConfigured):  # the system checks report it
            if (conf := configuration(alias)).engine != ZOOKEEPER:
                import_module(f"{conf.engine}.client")
