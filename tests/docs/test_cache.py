"""The function of docs/how-to/cache.md fills once, whoever asks meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache

from tests.docs.names import Names
from tests.docs.running import run_page
from tests.kit.tools import PATIENCE, MakeOwner

PAGE = "docs/how-to/cache.md"


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(names: Names) -> Iterator[Clock]:
    run_page(PAGE, names)
    names["time"] = clock = Clock()
    cache.clear()
    yield clock
    cache.clear()


@pytest.fixture
def cached(names: Names, clock: Clock) -> Callable[..., Any]:
    del clock  # it is set
    function: Callable[..., Any] = names["cached"]
    return function


class Filling:
    """Fills the cache, and counts that; it may be held up."""

    def __init__(self) -> None:
        self.times = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> int:
        self.times += 1
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        return self.times


@pytest.mark.parametrize("page", [PAGE])
def test_one_fills_and_the_others_wait_for_the_first_value(
    cached: Callable[..., Any], make_owner: MakeOwner
) -> None:
    fill = Filling()
    answers = [make_owner().submit(cached, "report", fill, 60) for _ in range(4)]
    assert fill.begun.wait(PATIENCE)
    fill.may_end.set()
    assert [answer.result(PATIENCE) for answer in answers] == [1, 1, 1, 1]
    assert fill.times == 1


@pytest.mark.parametrize("page", [PAGE])
def test_the_old_value_is_used_while_one_fills(
    cached: Callable[..., Any], clock: Clock, make_owner: MakeOwner
) -> None:
    fill = Filling()
    fill.may_end.set()
    assert cached("report", fill, 60) == 1
    assert cached("report", fill, 60) == 1
    clock.now += 61
    fill.may_end.clear()
    fill.begun.clear()
    filling = make_owner().submit(cached, "report", fill, 60)
    assert fill.begun.wait(PATIENCE)
    assert cached("report", fill, 60) == 1
    fill.may_end.set()
    assert filling.result(PATIENCE) == 2
    assert cached("report", fill, 60) == 2
