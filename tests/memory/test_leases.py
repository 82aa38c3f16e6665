"""The tests of tests/lease on the ZooKeeper in memory."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.lease import test_bad_input, test_blocks, test_expiry, test_leases

pytestmark = pytest.mark.usefixtures("tree")

#: They start processes, or speak to a server with kazoo's own client.
NOT_IN_MEMORY = (
    "test_processes_take_over_one_at_a_time_with_rising_tokens",
    "test_the_clocks_of_clients_do_not_matter",
)

globals().update(
    borrow(
        test_leases,
        test_blocks,
        test_expiry,
        test_bad_input,
        but=NOT_IN_MEMORY,
    )
)
