"""The tests of the recipes on PostgreSQL."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import RECIPES, borrow
from tests.mutex.test_processes import waiting_for

__all__ = ["waiting_for"]

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("tree")]

#: They speak to a server with kazoo's own client, or count what ZooKeeper's servers send.
NOT_IN_POSTGRESQL = (
    "test_a_kazoo_lock_in_the_line_is_refused",
    "test_a_release_sends_something_to_one_waiting_client_only",
)

globals().update(borrow(RECIPES, but=NOT_IN_POSTGRESQL))
