"""The tests of what looks at the locks on Redis: inspection, commands and the admin's pages."""

from __future__ import annotations

import pytest

from tests.admin.conftest import _site, make_operator, operator
from tests.commands.test_run_command import outcome, run
from tests.commands.test_sigterm import arguments
from tests.inspection.conftest import _no_clock_is_known
from tests.kit.borrowed import borrow

__all__ = [
    "_no_clock_is_known",
    "_site",
    "arguments",
    "make_operator",
    "operator",
    "outcome",
    "run",
]

pytestmark = pytest.mark.usefixtures("tree")

#: They make nodes with an ACL or with kazoo's own client, or name a server by its role.
NOT_IN_REDIS = (
    "test_long_work_says_on_a_terminal_how_far_it_is",
    "test_nodes_of_others_and_what_may_not_be_read_are_said",
    "test_the_panel_tells_of_the_session_and_the_servers",
    "test_what_may_not_be_read_is_not_broken",
    "test_what_may_not_be_read_is_said",
    "test_what_others_have_left_is_told_without_harm",
)

globals().update(
    borrow(
        {
            "inspection": "test_breaking test_graph test_snapshot",
            "commands": "test_acting test_looking test_run_command test_sigterm test_watch",
            "admin": "test_actions test_detail test_list test_wait_graph",
        },
        but=NOT_IN_REDIS,
    )
)
