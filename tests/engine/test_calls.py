"""A call is written once: a thread that blocks and a task that awaits take the same steps."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from distlock.engine.calls import Call
from tests.kit.tools import PATIENCE, Owner

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.calls import Steps, Wake

T = TypeVar("T")
Way = Any


def awaiting(call: Call[T]) -> T:
    return asyncio.run(call.arun())


either_way = pytest.mark.parametrize("way", [Call.run, awaiting])


class Interrupted(BaseException):
    """What lands in the middle, as Ctrl-C does."""


def until_woken(seconds: float, wake_it: Callable[[Wake], object], wake: Wake) -> Steps[float]:
    """Wait once, and return how long that took."""
    wake_it(wake)
    started = time.monotonic()
    yield seconds
    return time.monotonic() - started


def never() -> None:
    raise AssertionError("undone")


@either_way
def test_it_waits_until_another_thread_wakes_it(way: Way) -> None:
    def wake_soon(wake: Wake) -> None:
        threading.Timer(0.05, wake).start()

    assert 0 < way(Call(partial(until_woken, PATIENCE, wake_soon), never)) < PATIENCE / 2


@either_way
def test_it_does_not_wait_if_it_was_woken_before(way: Way) -> None:
    def wake_twice(wake: Wake) -> None:
        wake()
        wake()

    assert way(Call(partial(until_woken, PATIENCE, wake_twice), never)) < PATIENCE / 2


@either_way
def test_it_waits_no_longer_than_the_steps_say(way: Way) -> None:
    assert way(Call(partial(until_woken, 0.05, id), never)) >= 0.04


@either_way
def test_each_wait_needs_a_wake_of_its_own(way: Way) -> None:
    def steps(wake: Wake) -> Steps[float]:
        yield from until_woken(PATIENCE, lambda wake: wake(), wake)
        return (yield from until_woken(0.05, id, wake))

    assert way(Call(steps, never)) >= 0.04


@either_way
def test_a_call_that_never_waits_has_its_result(way: Way) -> None:
    def steps(_: Wake) -> Steps[str]:
        yield from ()
        return "result"

    assert way(Call(steps, never)) == "result"


@either_way
def test_what_the_steps_raise_undoes_the_call(way: Way) -> None:
    undone: list[str] = []

    def steps(_: Wake) -> Steps[None]:
        yield 0.01
        raise Interrupted

    with pytest.raises(Interrupted):
        way(Call(steps, lambda: undone.append("once")))
    assert undone == ["once"]


def test_an_interrupted_wait_undoes_the_call() -> None:
    undone: list[str] = []
    waits = threading.Event()

    def steps(_: Wake) -> Steps[None]:
        waits.set()
        while True:
            yield 0.01

    async def main() -> None:
        task = asyncio.create_task(Call(steps, lambda: undone.append("once")).arun())
        await asyncio.to_thread(waits.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert undone == ["once"]


def test_a_cancellation_in_the_instant_of_the_wake_is_no_result() -> None:
    """With `asyncio.wait_for` it would have been one (bpo-37658)."""
    undone: list[str] = []
    wakes: list[Wake] = []

    def steps(wake: Wake) -> Steps[str]:
        wakes.append(wake)
        yield PATIENCE
        return "result"

    async def main() -> None:
        task = asyncio.create_task(Call(steps, lambda: undone.append("once")).arun())
        await asyncio.sleep(0)
        wakes[0]()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert undone == ["once"]


def test_a_wake_that_comes_to_a_closed_loop_undoes_the_call() -> None:
    """Its task will never take what it waited for."""
    undone: list[str] = []
    wakes: list[Wake] = []

    def steps(wake: Wake) -> Steps[None]:
        wakes.append(wake)
        yield PATIENCE

    loop = asyncio.new_event_loop()
    task = loop.create_task(Call(steps, lambda: undone.append("once")).arun())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with Owner() as other:
        other.now(wakes[0])
    assert undone == ["once"]
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was, on purpose
