"""The tests of the recipes on the ZooKeeper in memory."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import RECIPES, borrow

pytestmark = pytest.mark.usefixtures("tree")

#: They start processes, or speak to a server with kazoo's own client.
NOT_IN_MEMORY = (
    "test_processes",
    "test_a_forked_child_has_nothing_of_its_parents",
    "test_a_kazoo_lock_in_the_line_is_refused",
    "test_a_release_sends_something_to_one_waiting_client_only",
    "test_a_signal_ends_the_wait_of_one_process_and_the_work_of_the_other",
    "test_processes_take_over_one_at_a_time_with_rising_tokens",
    "test_the_clocks_of_clients_do_not_matter",
    "test_the_next_process_leads_when_the_leader_is_killed",
    "test_threads_of_two_processes_are_served_in_the_order_in_which_they_came",
)

globals().update(borrow(RECIPES, but=NOT_IN_MEMORY))
