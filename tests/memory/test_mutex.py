"""The tests of tests/mutex on the ZooKeeper in memory."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.mutex import (
    test_curator_ports,
    test_fairness,
    test_kazoo_ports,
    test_recovery,
    test_reentrancy,
    test_signals_and_looking,
    test_timeouts,
)

pytestmark = pytest.mark.usefixtures("tree")

#: They start processes, or speak to a server with kazoo's own client.
NOT_IN_MEMORY = (
    "test_a_release_sends_something_to_one_waiting_client_only",
    "test_threads_of_two_processes_are_served_in_the_order_in_which_they_came",
)

globals().update(
    borrow(
        test_reentrancy,
        test_fairness,
        test_timeouts,
        test_recovery,
        test_kazoo_ports,
        test_curator_ports,
        test_signals_and_looking,
        but=NOT_IN_MEMORY,
    )
)
