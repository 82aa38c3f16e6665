"""Steps that are due at a time."""

from __future__ import annotations

import gc
import threading

import pytest

from distlock.engine import timer
from distlock.engine.timer import call_later
from tests.kit.helpers import eventually

PATIENCE = 20.0


class Step:
    def __init__(self) -> None:
        self.done = threading.Event()

    def take(self) -> None:
        self.done.set()


@pytest.mark.usefixtures("own_timer")
def test_steps_are_taken_in_the_order_of_their_times() -> None:
    taken: list[str] = []

    class Named(Step):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def take(self) -> None:
            taken.append(self.name)
            super().take()

    later, sooner = Named("later"), Named("sooner")
    call_later(0.2, later.take)
    call_later(0.05, sooner.take)
    assert later.done.wait(PATIENCE)
    assert taken == ["sooner", "later"]


@pytest.mark.usefixtures("own_timer")
def test_a_step_further_off_than_a_thread_can_wait_does_no_harm() -> None:
    never, soon = Step(), Step()
    call_later(1e12, never.take)
    call_later(0.05, soon.take)
    assert soon.done.wait(PATIENCE)
    assert not never.done.is_set()


@pytest.mark.usefixtures("own_timer")
def test_steps_whose_objects_are_gone_are_forgotten() -> None:
    kept = Step()
    call_later(3600, kept.take)
    for _ in range(3 * timer.MANY):
        call_later(3600, Step().take)
    gc.collect()
    running = timer._timer
    assert running is not None
    eventually(running.orders.empty, PATIENCE)
    call_later(0, kept.take)
    assert kept.done.wait(PATIENCE)
    eventually(lambda: len(running.due) <= timer.MANY + 1, PATIENCE)
