"""Fixtures of the tests without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from distlock.testing import MemoryTree, memory_zookeeper
from tests.kit.tools import PATIENCE

#: No server listens there.
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def options(settings: Settings) -> dict[str, Any]:
    """The settings name a server that is not there."""
    options = {"HOSTS": NOWHERE, "CONNECT_TIMEOUT": PATIENCE, "TIMEOUT": PATIENCE}
    settings.DISTLOCK = {"default": options, "other": options}
    return options


@pytest.fixture
def impatient(settings: Settings, options: dict[str, Any]) -> None:
    """Calls do not wait for long for a connection."""
    settings.DISTLOCK = {"default": {**options, "CONNECT_TIMEOUT": 2}}


@pytest.fixture
def memory() -> Iterator[MemoryTree]:
    with memory_zookeeper() as tree:
        yield tree
