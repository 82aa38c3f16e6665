"""The tests of tests/semaphore on the embedded server."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.semaphore import (
    test_curator_ports,
    test_kazoo_ports,
    test_limits,
    test_mistakes,
    test_semaphore,
    test_semaphore_mutex,
)

pytestmark = pytest.mark.usefixtures("tree")

globals().update(
    borrow(
        test_semaphore,
        test_limits,
        test_mistakes,
        test_semaphore_mutex,
        test_kazoo_ports,
        test_curator_ports,
    )
)
