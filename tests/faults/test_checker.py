"""The checker finds each kind of violation in a history, and passes what is allowed.

Every gate has a history that fails it alone, and one that is as close as can be and passes. They
are losses reported too late, calls without a bound, and the like. Mutual exclusion is in
`test_exclusion`.
"""

from __future__ import annotations

import pytest

from distlock_chaos.analysis import checker
from tests.faults.tools import Story, two_holds


def left(story: Story, *, nodes: list[str] | None = None, watches: int = 0) -> None:
    story.add(30, "left", nodes=nodes or [], watches=watches)


def test_a_good_history_passes(story: Story) -> None:
    two_holds(story)
    story.fault(3, "kill", until=3.5)
    left(story)
    assert story.violations() == []


# --- losses --------------------------------------------------------------------------------------


def cut_off_holder(story: Story, said: float) -> None:
    story.hold(1, "a", 10)
    story.cut_off(2, 8)
    story.lose(said, "a")
    story.release(said + 0.01, "a")
    story.hold(6, "b", 11, pid=2)


def test_a_loss_said_less_than_half_a_second_before_the_rival_is_late(story: Story) -> None:
    cut_off_holder(story, 5.6)
    assert story.gates() == ["late losses"]


def test_a_loss_said_half_a_second_before_the_rival_is_in_time(story: Story) -> None:
    cut_off_holder(story, 5.4)
    assert story.gates() == []
    assert [round(margin, 3) for _, margin in checker.margins(story.timeline())] == [0.6]


@pytest.mark.parametrize("kind", ["pause", "cut", "fork"])
def test_a_hold_that_is_lost_in_a_short_fault_is_a_needless_loss(story: Story, kind: str) -> None:
    story.hold(1, "a", 10)
    story.fault(1.5, kind, until=2)
    story.lose(3, "a")
    story.release(3.1, "a")
    assert story.gates() == ["needless losses"]


def test_a_loss_in_the_next_fault_is_not_needless(story: Story) -> None:
    story.hold(1, "a", 10)
    story.fault(1.5, "cut", until=2)
    story.fault(2.5, "quorum loss", until=8)
    story.lose(5, "a")
    story.release(5.1, "a")
    assert story.gates() == []


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["busy", "unavailable", "interrupted"])
def test_a_call_that_overruns_its_time_by_more_than_half_a_second(story: Story, how: str) -> None:
    story.ask(1, "a", timeout=3)
    story.end(4.6, "a", how)
    assert story.gates() == ["overruns"]


def test_a_call_that_overruns_its_time_by_less(story: Story) -> None:
    story.ask(1, "a", timeout=3)
    story.end(4.4, "a", "busy")
    assert story.gates() == []


def test_a_call_that_never_returns_overruns_its_time(story: Story) -> None:
    story.ask(1, "a", timeout=3)
    left(story)
    assert story.gates() == ["overruns"]


def test_a_release_that_does_not_return_overruns(story: Story) -> None:
    story.hold(1, "a", 10)
    story.release(2, "a", ended=2.6)
    assert story.gates() == ["overruns"]


def test_a_stopped_process_is_not_blamed_for_being_late(story: Story) -> None:
    story.ask(1, "a", timeout=3)
    story.stopped(3, 9)
    story.end(9.1, "a", "busy")
    assert story.gates() == []


@pytest.mark.parametrize(("ended", "gates"), [(4.6, []), (4.8, ["overruns"])])
def test_what_held_a_process_up_does_not_count_as_its_overrun(
    story: Story, ended: float, gates: list[str]
) -> None:
    story.ask(1, "a", timeout=3)
    story.held_up(0.5, 1.1)  # of which a tenth of a second is the call's
    story.held_up(2, 2.1)
    story.held_up(2, 3, pid=2)
    story.end(ended, "a", "busy")
    assert story.gates() == gates


def test_a_killed_process_is_not_blamed_for_not_answering(story: Story) -> None:
    story.ask(1, "a", timeout=3)
    story.add(2, "killed", pid=1)
    left(story)
    assert story.gates() == []


@pytest.mark.parametrize(("got", "gates"), [(6.9, []), (7.1, ["slow recoveries"])])
def test_after_a_fault_on_the_holder_the_next_has_it_within_timeout_tick_and_a_second(
    story: Story, got: float, gates: list[str]
) -> None:
    story.hold(0.9, "a", 10)
    story.fault(1, "kill", until=1.5)
    story.add(1.01, "killed", pid=1)
    story.hold(got, "b", 11, pid=2)
    story.release(got + 0.1, "b")
    story.ask(20, "c", pid=2)
    story.end(20.1, "c", "busy")
    assert story.gates() == gates


def test_a_recovery_that_the_end_of_the_run_cuts_short_does_not_count(story: Story) -> None:
    story.hold(1, "a", 10)
    story.fault(1, "kill", until=1.5)
    story.add(1.01, "killed", pid=1)
    story.ask(5, "b", pid=2)
    story.end(6, "b", "busy")
    left(story)
    assert story.gates() == []


@pytest.mark.parametrize("kind", ["quorum loss", "deaf"])
@pytest.mark.parametrize(("got", "gates"), [(15.9, []), (16.1, ["slow recoveries"])])
def test_after_a_fault_in_which_the_server_may_keep_the_session_recovery_counts_from_its_end(
    story: Story, kind: str, got: float, gates: list[str]
) -> None:
    story.fault(1, kind, until=10)
    story.hold(got, "b", 11, pid=2)
    story.release(got + 0.1, "b")
    story.ask(20, "c", pid=2)
    story.end(20.1, "c", "busy")
    assert story.gates() == gates


def test_a_recovery_that_the_next_fault_cuts_short_is_the_next_ones(story: Story) -> None:
    story.fault(1, "interrupt", until=1)
    story.fault(1.2, "quorum loss", until=10)
    story.hold(15.9, "b", 11, pid=2)
    story.release(16, "b")
    story.ask(20, "c", pid=2)
    story.end(20.1, "c", "busy")
    assert story.gates() == []


# --- what is left --------------------------------------------------------------------------------


def test_nodes_that_are_left(story: Story) -> None:
    left(story, nodes=["/chaos/key/_c_x-lock-0000000001"])
    assert story.gates() == ["nodes left"]


def test_watches_that_are_left(story: Story) -> None:
    left(story, watches=1)
    assert story.gates() == ["watches left"]


@pytest.mark.parametrize("event", ["stuck", "died"])
def test_processes_that_do_not_end_as_told(story: Story, event: str) -> None:
    story.add(3, event, pid=1)
    assert story.gates() == ["stuck processes"]


@pytest.mark.parametrize(("believes", "gates"), [(True, ["believing children"]), (False, [])])
def test_a_forked_child_does_not_hold(story: Story, believes: bool, gates: list[str]) -> None:
    story.add(3, "forked", pid=9, key="key", believes=believes)
    assert story.gates() == gates


def test_an_exception_that_nobody_expects(story: Story) -> None:
    story.ask(1, "a")
    story.end(1.1, "a", "failed: KeyError()")
    assert story.gates() == ["errors"]


# --- sessions and servers ------------------------------------------------------------------------


def worked_and_began_anew(story: Story, kind: str) -> None:
    """A process works, a fault comes, and the process begins another session."""
    story.add(0.5, "session", pid=1, id="0x1")
    story.hold(1, "a", 10)
    story.release(1.1, "a")
    story.fault(2, kind, until=4)
    story.add(4.5, "session", pid=1, id="0x2")


@pytest.mark.parametrize("kind", ["leader pause", "cut", "line begun anew"])
def test_a_session_that_a_short_fault_ends_is_abandoned(story: Story, kind: str) -> None:
    worked_and_began_anew(story, kind)
    assert story.gates() == ["abandoned sessions"]


@pytest.mark.parametrize("kind", ["frozen leader", "stop", "replaced server"])
def test_a_session_that_a_long_fault_ends_is_not_abandoned(story: Story, kind: str) -> None:
    worked_and_began_anew(story, kind)
    assert story.gates() == []


def test_the_first_session_of_a_process_abandons_none(story: Story) -> None:
    story.fault(2, "leader pause", until=4)
    story.add(3, "session", pid=1, id="0x1")
    assert story.gates() == []


def test_a_session_that_an_earlier_fault_has_ended_is_not_abandoned(story: Story) -> None:
    story.add(0.5, "session", pid=1, id="0x1")
    story.hold(1, "a", 10)
    story.release(1.1, "a")
    story.fault(2, "stop", until=8)
    story.fault(10, "leader pause", until=12)
    story.add(12.5, "session", pid=1, id="0x2")
    assert story.gates() == []


@pytest.mark.parametrize(
    ("kind", "gates"), [("line begun anew", ["refusals"]), ("leader pause", [])]
)
def test_a_call_that_is_refused_while_all_servers_serve(
    story: Story, kind: str, gates: list[str]
) -> None:
    story.fault(2, kind, until=4)
    story.ask(1.5, "a", timeout=6)
    story.end(2.5, "a", "unavailable")
    assert story.gates() == gates


@pytest.mark.parametrize("kind", ["replaced server", "demoted primary"])
@pytest.mark.parametrize(("got", "gates"), [(13.9, []), (14.1, ["absences"])])
def test_every_process_is_back_after_its_servers_were_replaced(
    story: Story, kind: str, got: float, gates: list[str]
) -> None:
    story.hold(1, "a", 10)
    story.release(1.1, "a")
    story.fault(3, kind, until=4)
    story.hold(4.5, "b", 11, pid=2)
    story.release(4.6, "b")
    story.hold(got, "c", 12)
    story.release(got + 0.1, "c")
    assert story.gates() == gates


def test_tokens_begin_anew_with_the_servers(story: Story) -> None:
    story.hold(1, "a", 10)
    story.release(2, "a")
    story.add(3, "replaced")
    story.hold(4, "b", 3, pid=2)
    story.release(5, "b")
    assert story.gates() == []


@pytest.mark.parametrize(("lost", "gates"), [(6.1, []), (6.3, ["overlaps"])])
def test_a_hold_that_a_replaced_server_forgets_ends_by_its_deadline(
    story: Story, lost: float, gates: list[str]
) -> None:
    story.hold(1, "a", 10)
    story.add(3, "replaced")
    story.hold(4, "b", 3, pid=2)
    story.lose(lost, "a")
    assert story.gates() == gates
