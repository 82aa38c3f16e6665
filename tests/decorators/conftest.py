from __future__ import annotations

import pytest
from pytest_django import Settings

from tests.testproject.templates import TEMPLATES


@pytest.fixture(autouse=True)
def _templates(settings: Settings) -> None:
    settings.TEMPLATES = TEMPLATES
