"""The session deadline, with a clock that does as it is told.

The deadline starts at the send, not at the loss. The same with a real server is in tests/deadline.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distlock.engine import deadline as heartbeat
from distlock.engine.deadline import SessionDeadline
from distlock.engine.zookeeper.connection import Connection
from tests.engine.conftest import T

if TYPE_CHECKING:
    from tests.engine.conftest import Clock

SOON = 15.0


@pytest.mark.usefixtures("clock")
def test_a_deadline_that_was_never_renewed_is_worth_nothing() -> None:
    assert SessionDeadline().remaining == 0


def test_a_deadline_is_two_thirds_of_the_session_timeout(deadline: SessionDeadline) -> None:
    assert deadline.remaining == T * 2 / 3


def test_a_deadline_counts_from_the_send_and_not_from_the_answer(clock: Clock) -> None:
    deadline, sent_at = SessionDeadline(), clock.time
    clock.time += 100
    deadline.renew(sent_at, T)
    assert deadline.remaining == T * 2 / 3 - 100


def test_a_late_answer_does_not_shorten_the_deadline(
    clock: Clock, deadline: SessionDeadline
) -> None:
    before = deadline.remaining
    deadline.renew(clock.time - 50, T)
    assert deadline.remaining == before


def test_an_unbroken_deadline_is_one_epoch(clock: Clock, deadline: SessionDeadline) -> None:
    epoch = deadline.epoch
    for _ in range(10):
        clock.time += T / 2
        deadline.renew(clock.time, T)
    assert deadline.epoch == epoch


@pytest.mark.parametrize("gap", [0.0, 0.001, 10_000.0])
def test_a_gap_of_any_length_begins_another_epoch(
    clock: Clock, deadline: SessionDeadline, gap: float
) -> None:
    epoch = deadline.epoch
    clock.time += T * 2 / 3 + gap
    deadline.renew(clock.time, T)
    assert deadline.epoch == epoch + 1
    assert deadline.remaining > 0


def test_a_renewal_in_the_middle_of_a_look_does_not_revive_what_was_lost(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, deadline: SessionDeadline
) -> None:
    epoch = deadline.epoch
    clock.time += T  # a gap, which loses what was held before it

    def renewed_meanwhile() -> float:
        monkeypatch.setattr(heartbeat, "now", clock)
        deadline.renew(clock.time, T)
        return clock.time

    monkeypatch.setattr(heartbeat, "now", renewed_meanwhile)
    assert not deadline.unbroken(epoch)
    assert deadline.running


def test_the_clock_goes_on_while_the_machine_is_stopped() -> None:
    # Not time.monotonic(), which stands still in a suspended machine.
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    assert heartbeat.now.args == (clock,)
    first = heartbeat.now()
    assert heartbeat.now() >= first
    assert abs(heartbeat.now() - time.clock_gettime(clock)) < SOON


# --- what a follower has reported ----------------------------------------------------------------


@pytest.fixture
def through_a_follower(clock: Clock) -> SessionDeadline:
    """One of a session that connected to ZooKeeper just now."""
    deadline = SessionDeadline()
    deadline.connected(clock.time, T)
    deadline.renew(clock.time, T)
    return deadline


def beat(clock: Clock, deadline: SessionDeadline, after: float) -> None:
    clock.time += after
    deadline.renew(clock.time, T)


def test_a_connection_with_a_shorter_timeout_shortens_the_deadline(
    clock: Clock, through_a_follower: SessionDeadline
) -> None:
    through_a_follower.connected(clock.time, T / 2)
    assert through_a_follower.remaining == pytest.approx(T / 2 * 0.98)


def test_heartbeats_that_are_answered_slowly_keep_as_much(
    clock: Clock, through_a_follower: SessionDeadline
) -> None:
    for _ in range(20):
        clock.time += T / 6 - T / 40
        sent_at = clock.time
        clock.time += T / 40
        through_a_follower.renew(sent_at, T)
        assert T * 0.64 < through_a_follower.remaining + T / 40 <= T * 2 / 3


def test_a_late_renewal_gives_only_what_the_leader_has_counted(
    clock: Clock, through_a_follower: SessionDeadline
) -> None:
    for _ in range(3):
        beat(clock, through_a_follower, T / 6)
    beat(clock, through_a_follower, T * 0.62)
    assert through_a_follower.remaining == pytest.approx(T * (1 - 0.62 - 1 / 50))


def test_what_was_sent_just_before_does_not_count(
    clock: Clock, through_a_follower: SessionDeadline
) -> None:
    for _ in range(4):
        beat(clock, through_a_follower, T / 6)
    beat(clock, through_a_follower, T * 0.6)
    left = through_a_follower.remaining
    for _ in range(11):
        beat(clock, through_a_follower, T / 40)
    assert through_a_follower.remaining == pytest.approx(left - T * 11 / 40)


def test_a_ping_counts_a_third_of_the_timeout_later_and_extends_nothing(
    clock: Clock, through_a_follower: SessionDeadline
) -> None:
    clock.time += T / 2
    through_a_follower.heard(clock.time, T)
    assert through_a_follower.remaining == pytest.approx(T / 6)
    beat(clock, through_a_follower, T / 3)
    assert through_a_follower.remaining == pytest.approx(T * (1 - 1 / 3 - 1 / 50))


@pytest.mark.parametrize("after", [0.01, T / 11, T / Connection.pings - 0.01])
def test_a_session_at_rest_needs_no_proof_before_the_next_acquire(
    clock: Clock, through_a_follower: SessionDeadline, after: float
) -> None:
    for _ in range(1000):
        clock.time += T / Connection.pings
        through_a_follower.heard(clock.time, T)
    beat(clock, through_a_follower, after)
    assert through_a_follower.remaining > T * 0.44


def test_a_burst_of_acquires_forgets_no_contact_that_will_count(
    clock: Clock, through_a_follower: SessionDeadline
) -> None:
    for _ in range(100_000):
        beat(clock, through_a_follower, T / 30_000)
        assert through_a_follower.remaining > T * 0.63


#: How a session goes on: what it does next, after how many hundredths of its timeout, and for how
#: many of these the link holds that up.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["renew", "hear", "connect"]), st.integers(1, 90), st.integers(0, 40)
    ),
    max_size=30,
)


@pytest.mark.parametrize(("ticks", "late"), [(3, 0), (2, 4)])
@given(steps=STEPS, phase=st.integers(0, 28))
@example(steps=[("renew", 17, 0), ("renew", 17, 0), ("renew", 62, 0)], phase=0)
@example(steps=[("renew", 17, 0), ("renew", 17, 32), ("renew", 34, 0)], phase=10)
@example(steps=[("renew", 62, 0), ("renew", 27, 0)], phase=3)
def test_no_deadline_is_later_than_what_the_leader_has_counted(
    ticks: int, late: int, steps: list[tuple[str, int, int]], phase: int
) -> None:
    """The leader pings twice a tick, or so many hundredths of a timeout later.

    The follower is stopped at each answer, so what it has not reported then never counts.
    """
    between, sent, arrived = 50 / ticks + late, 0.0, 0.0
    with patch.object(heartbeat, "now", lambda: arrived):
        deadline = SessionDeadline()
        deadline.connected(0.0, 100.0)
        counted, unreported = 0.0, [0.0]
        for kind, gap, delay in steps:
            sent += gap
            arrived = max(arrived, sent + delay)
            reported_at = phase + (arrived - phase) // between * between
            counted = max([counted, *(when for when in unreported if when < reported_at)])
            if kind == "connect":
                deadline.connected(sent, 100.0)
                counted = arrived
            elif kind == "hear":
                deadline.heard(sent, 100.0)
            else:
                deadline.renew(sent, 100.0)
                assert deadline._until < counted + 100
            unreported.append(arrived)
