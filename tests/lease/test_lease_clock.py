"""The age of a lease is never taken for more than it is, however often a clock is set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.session import lease_clock
from distlock.session.lease_clock import LeaseClock, sent_here, stamp

#: What rounding may add to an age, in seconds.
ROUNDING = 0.001


class World:
    """A server whose clock can be set, and a process that looks at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = 1000.0
        self.ahead = 1.7e9
        self.zxid = 100
        self.clock = LeaseClock()
        monkeypatch.setattr(lease_clock, "now", lambda: self.here)

    def write(self) -> SimpleNamespace:
        """Write a node on the server, now."""
        self.zxid += 1
        mtime = int((self.here + self.ahead) * 1000)
        return SimpleNamespace(mzxid=self.zxid, mtime=mtime, at=self.here)

    def read(self, there: float = 0.0, back: float = 0.0) -> None:
        """Ask for the server's time, with so many seconds on the way there and back."""
        sent = self.here
        self.here += there
        stat = self.write()
        self.here += back
        self.clock.note(stat, sent)

    def age(self, written: Any, sent_here: float | None = None) -> float:
        term: Any = SimpleNamespace(zxid=written.mzxid, mtime=written.mtime, sent_here=sent_here)
        return self.clock.age(term)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.mark.parametrize("step", [-1e6, -300, -0.5, 0.5, 300, 1e6])
@pytest.mark.parametrize("read_after_writing", [False, True])
def test_across_a_step_our_own_clock_measures(
    world: World, step: float, read_after_writing: bool
) -> None:
    world.read()
    written = world.write()
    if read_after_writing:
        world.read()
    world.here += 10
    world.ahead += step
    world.read()
    age = 10 if read_after_writing or step > 0 else max(10 + step, 0)
    assert world.age(written) == pytest.approx(age, abs=3 * ROUNDING)
    world.here += 20
    world.read()
    assert world.age(written) == pytest.approx(age + 20, abs=3 * ROUNDING)


def test_who_begins_after_a_step_back_counts_from_its_first_look(world: World) -> None:
    written = world.write()
    world.ahead -= 300
    for age in (0, 10, 20):
        world.read()
        assert world.age(written) == pytest.approx(age, abs=2 * ROUNDING)
        world.here += 10


def test_a_slow_answer_is_no_step(world: World) -> None:
    world.read()
    written = world.write()
    for there, back in ((5, 0), (0, 5), (5, 5)):
        world.read(there, back)
    world.read()
    assert world.age(written) == pytest.approx(20, abs=2 * ROUNDING)
    assert len(world.clock._readings) == 2


def test_the_moment_of_sending_on_this_machine_bounds_the_age(world: World) -> None:
    written = world.write()
    sent = world.here
    world.here += 10
    world.ahead += 300
    world.read()
    assert world.age(written) == pytest.approx(310, abs=2 * ROUNDING)
    assert world.age(written, sent) == pytest.approx(10, abs=2 * ROUNDING)


def test_another_tree_is_begun_anew(world: World) -> None:
    """The development server, say, is restarted with nothing in it."""
    world.read()
    world.here += 10
    world.zxid = 0
    world.read()
    written = world.write()
    world.here += 10
    world.read()
    assert world.age(written) == pytest.approx(10, abs=2 * ROUNDING)
    assert {reading.zxid for reading in world.clock._readings} == {1, 3}


def test_answers_that_overtake_each_other_change_nothing(world: World) -> None:
    late = world.write()
    world.read()
    before = world.clock._readings
    world.clock.note(late, 1000.0)
    assert world.clock._readings == before


def test_a_long_life_keeps_few_readings(world: World) -> None:
    for _ in range(100):
        world.here += 60
        world.read()
    assert len(world.clock._readings) == 2
    for _ in range(100):
        world.ahead += 1
        world.here += 60
        world.read()
        world.read()
    assert len(world.clock._readings) == lease_clock._KEPT


seconds = st.floats(0, 1000)
#: What a request or an answer may take, in seconds.
ON_THE_WAY = 0.05


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pass"), seconds),
            st.tuples(st.just("write")),
            st.tuples(st.just("step"), st.floats(-1000, 1000)),
            st.tuples(st.just("read"), st.floats(0, ON_THE_WAY), st.floats(0, ON_THE_WAY)),
        ),
        max_size=60,
    )
)
def test_no_age_is_more_than_it_is(events: list[tuple[Any, ...]]) -> None:
    """One step between two looks is the most that anybody can see; the first look is before all."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(patch)
        world.read()
        written = [world.write()]
        stepped = False
        for kind, *values in events:
            match kind:
                case "pass":
                    world.here += values[0]
                case "write":
                    written.append(world.write())
                case "step" if not stepped:
                    world.ahead += values[0]
                    stepped = True
                case "read":
                    world.read(*values)
                    stepped = False
            for one in written:
                # A step that is shorter than two answers take hides in them, or in the drift.
                slack = 8 * ON_THE_WAY + 2 * lease_clock._DRIFT * (world.here - 1000)
                assert world.age(one) <= world.here - one.at + slack + 6 * ROUNDING


@given(
    st.lists(
        st.tuples(seconds, st.sampled_from([0, -1e4, 1e4]), st.floats(0, 30), st.floats(0, 30)),
        max_size=9,
    )
)
def test_no_age_shrinks(looks: list[tuple[float, float, float, float]]) -> None:
    """However slow the answers are, and however often the clock is set, if far enough to see."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(patch)
        world.read()
        written = world.write()
        ages = [0.0]
        for passed, step, there, back in looks:
            world.here += passed
            world.ahead += step
            world.read(there, back)
            ages.append(world.age(written))
    for before, after in pairwise(ages):
        assert after >= before - ROUNDING


# --- the machine ---------------------------------------------------------------------------------


@pytest.fixture
def _new_machine() -> Iterator[None]:
    lease_clock.this_machine.cache_clear()
    yield
    lease_clock.this_machine.cache_clear()


def test_a_stamp_is_of_this_machine(world: World) -> None:
    said = stamp()
    assert sent_here(said) == world.here
    assert sent_here({**said, "machine": "another"}) is None
    assert sent_here({**said, "sent": world.here + 1}) is None
    for sent in (None, "1", True, float("nan"), float("inf")):
        assert sent_here({**said, "sent": sent}) is None
    assert sent_here({}) is None


@pytest.mark.usefixtures("_new_machine")
def test_where_the_machine_has_no_name_there_is_no_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> bytes:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_bytes", fail)
    assert stamp() == {}
    assert sent_here({"machine": "", "sent": 1.0}) is None
