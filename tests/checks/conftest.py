"""Fixtures of the tests of the checks: settings that are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock import zk_locked
from distlock.checks import MIDDLEWARE
from tests.kit.helpers import Urls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings


@pytest.fixture(scope="module", autouse=True)
def _another_tests_function() -> Iterator[None]:
    """A locked function that is wrong, and lives on: the garbage collector has not come yet."""

    @zk_locked("<nothing>")
    def wrong() -> None: ...

    yield
    del wrong


@pytest.fixture(autouse=True)
def right(settings: Settings) -> Settings:
    """Settings with which every check is quiet."""
    settings.DISTLOCK = {
        "default": {
            "HOSTS": "zk1",
            "AUTH": [("digest", "a:b")],
            "ACL": "creator",
            "TLS": {"ca": "x"},
        }
    }
    settings.MIDDLEWARE = [MIDDLEWARE]
    settings.ROOT_URLCONF = Urls()
    return settings
