"""The tests of tests/mutex on the embedded server."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.mutex import (
    test_curator_ports,
    test_fairness,
    test_kazoo_ports,
    test_processes,
    test_recovery,
    test_reentrancy,
    test_signals_and_looking,
    test_timeouts,
)

pytestmark = pytest.mark.usefixtures("tree")

#: One asks with the four-letter word ``cons``, the others want a fixture of their module.
NOT_EMBEDDED = (
    "test_a_release_sends_something_to_one_waiting_client_only",
    "test_a_process_that_dies_keeps_its_locks_until_its_session_ends",
    "test_a_process_that_ends_in_order_frees_its_locks_at_once",
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
        test_processes,
        but=NOT_EMBEDDED,
    )
)
