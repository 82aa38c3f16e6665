"""The tests of tests/rwlock on the ZooKeeper in memory."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.rwlock import test_downgrade, test_ports, test_rwlock, test_upgrade

pytestmark = pytest.mark.usefixtures("tree")

#: They start processes, or speak to a server with kazoo's own client.
NOT_IN_MEMORY = ("test_a_kazoo_lock_in_the_line_is_refused",)

globals().update(
    borrow(
        test_rwlock,
        test_downgrade,
        test_upgrade,
        test_ports,
        but=NOT_IN_MEMORY,
    )
)
