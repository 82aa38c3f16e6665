from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.testproject.templates import TEMPLATES

if TYPE_CHECKING:
    from pytest_django import Settings


@pytest.fixture(autouse=True)
def _templates(settings: Settings) -> None:
    settings.TEMPLATES = TEMPLATES
