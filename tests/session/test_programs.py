"""A program asks, waits and is answered, for a thread that blocks and a task that awaits alike."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from distlock import LockUnavailable
from distlock.conf import Configuration
from distlock.engine.calls import Call
from distlock.engine.errors import UNKNOWN, NoAuth, NodeExists, NoNode, NotYet, TimeUp
from distlock.engine.reply import Done
from distlock.session import programs
from distlock.session.programs import Driver, Program, asking, below, each, in_background
from tests.kit.helpers import eventually
from tests.kit.tools import OVERRUN, PATIENCE, within

either_way = pytest.mark.parametrize("way", [Call.run, lambda call: asyncio.run(call.arun())])
Way = Any


class Session:
    """A session that notes the requests, which a test answers."""

    conf = Configuration(hosts="localhost:1")

    def __init__(self) -> None:
        self.connected = True
        self.over = False
        #: The requests that are under way, by name.
        self.asked: list[tuple[str, Done]] = []
        self.parked: list[Callable[[], None]] = []
        #: Whether each request is answered at once, by its name; and the most under way.
        self.answers = False
        self.most = 0

    def when_connected(self, step: Callable[[], None]) -> None:
        if self.connected:
            step()
        else:
            self.parked.append(step)

    soon = when_connected  # on the connection thread, which a test has not

    def connect(self) -> None:
        self.connected = True
        while self.parked:
            self.parked.pop(0)()

    def unavailable(self, key: str, error: BaseException | None = None) -> LockUnavailable:
        found = LockUnavailable("away", key=key)
        found.__cause__ = error
        return found

    def request(self, name: str, done: Done) -> None:
        self.asked.append((name, done))
        self.most = max(self.most, len(self.asked))
        if self.answers:
            threading.Timer(0, self.answer).start()

    def answer(self, error: BaseException | None = None) -> None:
        name, done = self.asked.pop(0)
        done(None if error else name.upper(), error)


@pytest.fixture
def session() -> Session:
    return Session()


def driver(session: Any, timeout: float | None = PATIENCE) -> Driver:
    return Driver(session, "key", timeout)


def begin(driver: Driver, program: Program[Any]) -> Any:
    """Take the first steps of a program."""
    steps = driver.steps(program, lambda: None)
    next(steps)
    return steps


def result_of(steps: Any) -> Any:
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


# --- what comes back -----------------------------------------------------------------------------


@either_way
def test_each_value_is_handed_in(session: Session, way: Way) -> None:
    def program() -> Program[str]:
        first = yield partial(session.request, "a")
        second, third = yield [partial(session.request, name) for name in "bc"]
        return f"{first}{second}{third}"

    session.answers = True
    assert way(driver(session).call(program())) == "ABC"


@either_way
def test_seconds_pass_at_most_and_all_at_once_if_it_is_woken(session: Session, way: Way) -> None:
    def program(one: Driver) -> Program[None]:
        yield 0.01
        threading.Timer(0.05, one._wake).start()
        yield PATIENCE

    one = driver(session, 2 * PATIENCE)
    with within(PATIENCE / 2):
        way(one.call(program(one)))


def test_an_error_is_raised_where_it_was_asked(session: Session) -> None:
    def program() -> Program[str]:
        try:
            yield partial(session.request, "a")
        except NoNode:
            return "gone"
        return "there"

    steps = begin(driver(session), program())
    session.answer(NoNode())
    assert result_of(steps) == "gone"


@pytest.mark.parametrize("error", [NoNode(), NodeExists()])
def test_what_the_server_says_of_a_node_is_raised_as_it_is(
    session: Session, error: Exception
) -> None:
    steps = begin(driver(session), asking(partial(session.request, "a")))
    session.answer(error)
    with pytest.raises(type(error)):
        next(steps)


def test_any_other_error_is_told_with_the_key(session: Session) -> None:
    steps = begin(driver(session), asking(partial(session.request, "a")))
    session.answer(error := NoAuth())
    with pytest.raises(LockUnavailable) as raised:
        next(steps)
    assert (raised.value.key, raised.value.__cause__) == ("key", error)


def test_what_lands_in_a_program_is_no_answer_of_the_server(session: Session) -> None:
    """A soft time limit is an Exception, too."""

    def program() -> Program[None]:
        yield partial(session.request, "a")
        raise RuntimeError

    steps = begin(driver(session), program())
    session.answer()
    with pytest.raises(RuntimeError):
        next(steps)


def test_errors_of_a_list_stand_in_it(session: Session) -> None:
    def program() -> Program[list[Any]]:
        answers: list[Any] = yield [partial(session.request, name) for name in "abc"]
        return answers

    steps = begin(driver(session), program())
    session.answer()
    session.answer(gone := NoNode())
    session.answer()
    assert result_of(steps) == ["A", gone, "C"]


def test_of_each_the_errors_that_are_expected_are_none(session: Session) -> None:
    steps = begin(driver(session), each((partial(session.request, "a") for _ in "ab"), NoNode))
    session.answer(NoNode())
    session.answer()
    assert result_of(steps) == [None, "A"]
    steps = begin(driver(session), each([partial(session.request, "a")], NoNode))
    session.answer(NoAuth())
    with pytest.raises(LockUnavailable):
        next(steps)


def test_a_parent_is_made_as_often_as_it_is_missing(session: Session) -> None:
    one: Any = session
    one.create_containers = session.request
    steps = begin(driver(session), below(one, "parent", partial(session.request, "child")))
    for _ in range(2):
        session.answer(NoNode())
        next(steps)
        assert [name for name, _ in session.asked] == ["parent"]
        session.answer()
        next(steps)
    session.answer()
    assert result_of(steps) == "CHILD"


# --- many ----------------------------------------------------------------------------------------


def test_many_are_asked_a_few_hundred_at_a_time_and_answered_in_order(session: Session) -> None:
    names = [f"n{number}" for number in range(3 * programs.BATCH + 1)]
    session.answers = True
    call = driver(session, 60).call(each(partial(session.request, name) for name in names))
    assert call.run() == [name.upper() for name in names]
    assert session.most <= programs.BATCH


def test_nothing_is_asked_after_a_lost_connection(session: Session) -> None:
    requests = [partial(session.request, "n") for _ in range(2 * programs.BATCH)]
    steps = begin(driver(session), each(requests, NoNode))
    lost = UNKNOWN[0]()
    while session.asked:
        session.answer(lost)
    with pytest.raises(LockUnavailable) as raised:
        next(steps)
    assert raised.value.__cause__ is lost
    assert not session.asked


def test_nothing_is_asked_where_nothing_is_wanted(session: Session) -> None:
    session.connected = False
    assert driver(session, 0).call(each([])).run() == []


# --- time ----------------------------------------------------------------------------------------


@either_way
def test_a_call_ends_in_its_time_and_what_was_not_sent_never_is(session: Session, way: Way) -> None:
    session.connected = False
    with within(0.2 + OVERRUN), pytest.raises(LockUnavailable):
        way(driver(session, 0.2).call(asking(partial(session.request, "a"))))
    session.connect()
    assert not session.asked


def test_without_time_nothing_is_sent(session: Session) -> None:
    with pytest.raises(LockUnavailable):
        driver(session, 0).call(asking(partial(session.request, "a"))).run()
    assert not session.asked


def test_answers_that_are_late_are_missing_in_the_list(session: Session) -> None:
    def program() -> Program[list[Any]]:
        answers: list[Any] = yield [partial(session.request, name) for name in "ab"]
        return answers

    steps = begin(driver(session, 0.1), program())
    session.answer()
    time.sleep(0.11)
    first, second = result_of(steps)
    assert first == "A"
    assert isinstance(second, TimeUp)
    session.answer()


def test_a_session_that_is_over_is_not_waited_for(session: Session) -> None:
    session.over = True
    with within(1), pytest.raises(LockUnavailable):
        driver(session, None).call(asking(partial(session.request, "a"))).run()


def test_what_a_caller_has_left_is_not_sent(session: Session) -> None:
    session.connected = False
    one = driver(session, None)
    steps = begin(one, asking(partial(session.request, "a")))
    steps.close()
    one.call(asking(partial(session.request, "b"))).undo()
    session.connect()
    assert not session.asked


@pytest.mark.parametrize("in_time", [True, False])
def test_a_server_that_refuses_for_a_while_is_asked_again_if_there_is_time(
    session: Session, in_time: bool
) -> None:
    one = driver(session, PATIENCE if in_time else 0.1)
    steps = begin(one, asking(partial(session.request, "a")))
    not_yet = NotYet()
    not_yet.until = time.monotonic() + 0.15
    session.answer(not_yet)
    if in_time:
        eventually(lambda: next(steps) and session.asked)
        session.answer()
        assert result_of(steps) == "A"
    else:
        with pytest.raises(LockUnavailable):
            next(steps)


# --- in the background ---------------------------------------------------------------------------


def test_in_the_background_it_goes_on_as_the_answers_come(session: Session) -> None:
    done: list[Any] = []

    def program() -> Program[None]:
        try:
            done.append((yield partial(session.request, "a")))
            yield partial(session.request, "b")
        except NoNode:
            done.append("gone")

    in_background(session, program())  # type: ignore[arg-type]
    session.answer()
    session.answer(NoNode())
    assert done == ["A", "gone"]
    assert not session.asked


def test_in_the_background_it_waits_for_a_connection(session: Session) -> None:
    session.connected = False
    in_background(session, asking(partial(session.request, "a")))  # type: ignore[arg-type]
    assert not session.asked
    session.connect()
    assert len(session.asked) == 1


def test_an_error_ends_what_runs_in_the_background_and_a_mistake_is_none(session: Session) -> None:
    def program() -> Program[None]:
        yield partial(session.request, "a")
        raise RuntimeError

    in_background(session, program())  # type: ignore[arg-type]
    session.answer(NoAuth())
    in_background(session, program())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        session.answer()
