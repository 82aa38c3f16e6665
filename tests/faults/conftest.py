"""A history to be told."""

from __future__ import annotations

import pytest

from tests.faults.tools import Story


@pytest.fixture
def story() -> Story:
    return Story()
