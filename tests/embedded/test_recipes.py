"""The tests of the recipes on the embedded server."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import RECIPES, borrow

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("tree")]

#: They want a fixture of their module.
NOT_EMBEDDED = (
    "test_a_process_that_dies_keeps_its_locks_until_its_session_ends",
    "test_a_process_that_ends_in_order_frees_its_locks_at_once",
)

globals().update(borrow(RECIPES, but=NOT_EMBEDDED))
