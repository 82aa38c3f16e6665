"""The checker finds each way in which two hold at once, or act as if they did.

Two holders: a grant on a node of the earlier session, and a hold that outlives its session.
"""

from __future__ import annotations

import pytest

from distlock_chaos.analysis import checker
from tests.faults.tools import Story, two_holds

# --- mutual exclusion ----------------------------------------------------------------------------


def test_a_write_after_a_check_that_began_after_the_rivals_acquire_is_a_stale_act(
    story: Story,
) -> None:
    story.hold(1, "a", 10)
    story.claim(1.1, "a", fenced=0)
    story.stopped(1.2, 7)
    story.hold(6, "b", 11, pid=2)
    story.check(7.1, "a")
    story.write(7.11, "a", read=0)
    story.check(7.2, "a", passed=False)
    story.release(7.21, "a")
    assert story.gates() == ["stale acts"]


def test_a_write_after_a_check_that_began_before_the_rivals_acquire_is_unavoidable(
    story: Story,
) -> None:
    story.hold(1, "a", 10)
    story.claim(1.1, "a", fenced=0)
    story.check(1.2, "a")
    story.stopped(1.2005, 7)
    story.hold(6, "b", 11, pid=2)
    story.claim(6.1, "b", fenced=0)
    story.write(7.001, "a", read=0, accepted=False)
    story.check(7.01, "a", passed=False)
    story.release(7.02, "a")
    assert story.gates() == []
    stale, unavoidable = checker.acts(story.timeline())
    assert (len(stale), len(unavoidable)) == (0, 1)


def test_a_hold_that_is_not_given_up_before_the_rivals_acquire_overlaps(story: Story) -> None:
    story.hold(1, "a", 10)
    story.hold(6, "b", 11, pid=2)
    story.lose(6.1, "a")
    story.release(6.2, "a")
    assert story.gates() == ["overlaps"]


def test_a_hold_that_never_ends_overlaps(story: Story) -> None:
    story.hold(1, "a", 10)
    story.hold(6, "b", 11, pid=2)
    assert story.gates() == ["overlaps"]


def test_a_killed_holder_holds_no_more(story: Story) -> None:
    story.hold(1, "a", 10)
    story.add(2, "killed", pid=1)
    story.hold(6, "b", 11, pid=2)
    assert story.gates() == []


def test_a_stopped_holder_has_half_a_second_to_say_its_loss(story: Story) -> None:
    story.hold(1, "a", 10)
    story.stopped(2, 8)
    story.hold(6, "b", 11, pid=2)
    story.release(8.4, "a")
    assert story.gates() == []


def test_a_holder_that_goes_on_after_a_stop_overlaps(story: Story) -> None:
    story.hold(1, "a", 10)
    story.stopped(2, 8)
    story.hold(6, "b", 11, pid=2)
    story.release(8.6, "a")
    assert story.gates() == ["overlaps"]


def test_a_holder_that_was_stopped_long_before_the_rival_came_overlaps(story: Story) -> None:
    story.hold(1, "a", 10)
    story.stopped(2, 3)
    story.hold(6, "b", 11, pid=2)
    story.release(6.1, "a")
    assert story.gates() == ["overlaps"]


def test_a_grant_after_that_of_a_greater_token_overlaps(story: Story) -> None:
    story.hold(1, "b", 11, pid=2)
    story.release(2, "b")
    story.hold(3, "a", 10)
    story.release(4, "a")
    assert story.gates() == ["overlaps"]


def test_the_holder_of_a_broken_lock_must_know_after_one_heartbeat(story: Story) -> None:
    story.hold(1, "a", 10)
    story.add(2, "broke", pid=1, key="key")
    story.hold(2.01, "b", 11, pid=2)
    story.lose(2 + 4 / 6 + 0.4, "a")
    assert story.gates() == []


def test_the_holder_of_a_broken_lock_that_goes_on_overlaps(story: Story) -> None:
    story.hold(1, "a", 10)
    story.add(2, "broke", pid=1, key="key")
    story.hold(2.01, "b", 11, pid=2)
    story.claim(2.1, "a", fenced=0)
    story.check(3.5, "a")
    story.write(3.51, "a", read=0)
    story.lose(3.6, "a")
    assert story.gates() == ["overlaps", "stale acts"]


# --- the registers -------------------------------------------------------------------------------


def test_a_fenced_write_over_what_its_writer_had_not_read_is_a_lost_update(story: Story) -> None:
    two_holds(story)
    story.hold(3, "c", 12)
    story.claim(3.1, "c", fenced=2)
    story.check(3.2, "c")
    story.write(3.3, "c", read=1, found=2)
    story.release(3.4, "c")
    assert story.gates() == ["lost updates"]
    assert checker.naive_losses(story.timeline()) == 1


def test_a_write_that_was_taken_after_one_with_a_greater_token_is_a_fence_violation(
    story: Story,
) -> None:
    story.hold(1, "a", 10)
    story.claim(1.1, "a", fenced=0)
    story.check(1.2, "a")
    story.stopped(1.2005, 7)
    story.hold(6, "b", 11, pid=2)
    story.claim(6.1, "b", fenced=0)
    story.write(7.001, "a", read=0)
    story.check(7.01, "a", passed=False)
    assert story.gates() == ["fence violations"]


def test_a_refusal_without_a_greater_token_is_a_fence_violation(story: Story) -> None:
    story.hold(1, "a", 10)
    story.claim(1.1, "a", fenced=0, accepted=False)
    story.release(1.2, "a")
    assert story.gates() == ["fence violations"]


def test_two_holds_with_one_token_are_a_fence_violation(story: Story) -> None:
    story.hold(1, "a", 10)
    story.release(2, "a")
    story.hold(3, "b", 10, pid=2)
    story.release(4, "b")
    assert story.gates() == ["fence violations"]


# --- other recipes -------------------------------------------------------------------------------


def test_readers_share(story: Story) -> None:
    story.hold(1, "a", 10, mode="read")
    story.hold(2, "b", 11, pid=2, mode="read")
    story.read(2.1, "b")
    story.read(2.2, "a")
    story.release(3, "a")
    story.release(3, "b")
    assert story.gates() == []


@pytest.mark.parametrize(("first", "second"), [("read", "write"), ("write", "read")])
def test_a_writer_shares_with_nobody(story: Story, first: str, second: str) -> None:
    story.hold(1, "a", 10, mode=first)
    story.hold(2, "b", 11, pid=2, mode=second)
    story.release(3, "a")
    story.release(3, "b")
    assert story.gates() == ["overlaps"]


def test_a_read_after_a_check_that_lied_is_a_stale_act(story: Story) -> None:
    story.hold(1, "a", 10, mode="read")
    story.stopped(1.5, 7)
    story.hold(6, "b", 11, pid=2, mode="write")
    story.check(7.1, "a")
    story.read(7.11, "a")
    story.check(7.2, "a", passed=False)
    story.release(7.21, "a")
    assert story.gates() == ["stale acts"]


@pytest.mark.parametrize(("granted", "gates"), [(2.1, []), (1.9, ["crowds"])])
def test_no_more_than_the_limit_have_a_permit(
    story: Story, granted: float, gates: list[str]
) -> None:
    story.hold(1, "a", 10, mode="permit")
    story.hold(1.1, "b", 11, pid=2, mode="permit")
    story.release(2, "a")
    story.hold(granted, "c", 12, pid=3, mode="permit")
    story.release(3, "b")
    story.release(3, "c")
    assert story.gates() == gates


def test_a_stopped_process_may_keep_its_permit_until_it_runs(story: Story) -> None:
    story.hold(1, "a", 10, mode="permit")
    story.hold(1.1, "b", 11, pid=2, mode="permit")
    story.stopped(1.5, 8)
    story.hold(7, "c", 12, pid=3, mode="permit")
    story.lose(8.1, "a")
    story.release(9, "b")
    story.release(9, "c")
    assert story.gates() == []


def test_locks_that_are_taken_together_are_got_together(story: Story) -> None:
    story.hold(1, "a", 10, group="a")
    story.ask(1, "b", group="a")
    story.release(2, "a")
    story.end(2, "b", "busy")
    assert story.gates() == ["parts"]


@pytest.mark.parametrize(("passed", "gates"), [(5.9, []), (6.1, ["overlaps", "stale acts"])])
def test_a_lease_is_held_until_its_last_check_that_passed(
    story: Story, passed: float, gates: list[str]
) -> None:
    story.hold(1, "a", 10, mode="lease")
    story.hold(6, "b", 11, pid=2, mode="lease")
    story.check(passed, "a")
    story.write(passed + 0.2, "a", read=0)
    story.check(6.5, "a", passed=False)
    story.release(6.6, "a")
    story.release(7, "b")
    assert story.gates() == gates


def test_a_waiter_whose_node_an_operator_removed_must_know_after_one_heartbeat(
    story: Story,
) -> None:
    story.ask(1, "a", timeout=9)
    story.add(2, "broke", pid=1, key="key")
    story._tokens["a"] = 10
    story.add(2.1, "got", call="a", token=10)
    story.hold(2.2, "b", 11, pid=2)
    story.lose(3.2, "a")
    story.release(4, "b")
    assert story.gates() == []
