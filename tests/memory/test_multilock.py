"""The tests of tests/multilock on the ZooKeeper in memory."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.multilock import test_mistakes, test_multilock, test_ports

pytestmark = pytest.mark.usefixtures("tree")

globals().update(
    borrow(
        test_multilock,
        test_mistakes,
        test_ports,
    )
)
