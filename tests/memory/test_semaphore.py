"""The tests of tests/semaphore on the ZooKeeper in memory."""

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

#: They start processes, or speak to a server with kazoo's own client.
NOT_IN_MEMORY = ("test_a_forked_child_has_nothing_of_its_parents",)

globals().update(
    borrow(
        test_semaphore,
        test_limits,
        test_mistakes,
        test_semaphore_mutex,
        test_kazoo_ports,
        test_curator_ports,
        but=NOT_IN_MEMORY,
    )
)
