"""Fixtures of the tests of the checks: settings that are right."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from distlock.checks import MIDDLEWARE
from tests.kit.helpers import Urls


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
