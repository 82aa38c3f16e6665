"""The session deadline, with a clock that does as it is told.

DESIGN §3.5, PITFALLS 20 (the deadline starts at the send, not at the loss). The same with a real
server is in tests/deadline.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from distlock.engine import deadline as heartbeat
from distlock.engine.deadline import SessionDeadline
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


def test_an_answer_that_comes_too_late_proves_nothing(clock: Clock) -> None:
    deadline, sent_at = SessionDeadline(), clock.time
    clock.time += T
    deadline.renew(sent_at, T)
    assert deadline.remaining == 0


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
