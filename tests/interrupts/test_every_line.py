"""An exception before any line of any recipe leaves nothing, and the next acquire is prompt.

RecursionError and MemoryError may come from any line, as may what a signal handler raises. By the
technique, and with the exceptions, of tests/deadline/test_every_step.py. The next acquire is
measured because of a wake-up that an exception once swallowed: every later acquire took 3 s.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType

import pytest

from distlock import LockBusy, zk_semaphore
from distlock.owner.owner import current
from tests.deadline import test_every_step as technique
from tests.interrupts.recipes import (
    EXITS,
    RECIPES,
    attempt_of,
    block_of,
    everything,
    nothing_is_left,
    parents,
    read_inside_write,
    several,
)
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, within

pytestmark = pytest.mark.deep

#: How long an acquire may take after an interrupted one: a new connection, and no timeout.
PROMPT_SECONDS = 2.0


def first_line_of_body(exit_: CodeType) -> int:
    """The number of the line after the first ``try:``, or of the first line without one."""
    lines = sorted({line for *_, line in exit_.co_lines() if line})
    for number in lines:
        if linecache.getline(exit_.co_filename, number).strip() == "try:":
            return number + 1
    return lines[1]


@pytest.fixture(autouse=True)
def _heads_of_exits_are_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_reach = technique.out_of_reach
    bodies = {exit_: first_line_of_body(exit_) for exit_ in EXITS}

    def also(frame: FrameType) -> bool:
        return out_of_reach(frame) or frame.f_lineno < bodies.get(frame.f_code, 0)

    monkeypatch.setattr(technique, "out_of_reach", also)


CALLS: dict[str, Callable[[], None]] = {
    **{recipe: block_of(recipe) for recipe in RECIPES},
    **{
        f"attempt of {recipe}": attempt_of(recipe) for recipe in ("mutex", "semaphore", "multilock")
    },
    "a writer that reads": read_inside_write,
    "several without a block": several,
}


def interrupt_everywhere(
    call: Callable[[], None], error: type[BaseException], check: Callable[[], None]
) -> None:
    """Interrupt a call at each of its lines, and check after each."""
    steps: list[str] = []
    for step in itertools.count(1):
        interruption = technique.Interruption(step, error)
        with suppress(error), interruption:
            call()
        if not interruption.landed:
            break
        steps.append(interruption.landed)
        try:
            check()
        except BaseException as failure:
            raise AssertionError(f"interrupted at {interruption.landed}: {failure!r}") from failure
    assert len(steps) > 80
    assert {"requests.py", "serving.py"} <= {one.partition(":")[0] for one in steps}


@pytest.mark.parametrize("error", [RecursionError, technique.SoftLimit])
@pytest.mark.parametrize("name", CALLS)
def test_an_exception_before_any_line_leaves_nothing_and_does_not_slow_down_the_next_call(
    tree: Tree, name: str, error: type[BaseException]
) -> None:
    parents(tree)
    await_connection()
    call = CALLS[name]
    call()

    def nothing_is_left_and_the_next_is_prompt() -> None:
        with within(PROMPT_SECONDS):
            call()
        nothing_is_left(tree)

    interrupt_everywhere(call, error, nothing_is_left_and_the_next_is_prompt)


def test_an_exception_before_any_line_of_a_refused_multilock_leaves_nothing(
    tree: Tree, make_owner: MakeOwner
) -> None:
    parents(tree)
    await_connection()
    holder, lock = make_owner(), zk_semaphore("key-2", 1, using="other")
    assert holder.now(lock.acquire)
    (theirs,) = everything(tree)

    def only_theirs_is_left() -> None:
        assert not current().held
        eventually(lambda: everything(tree) == [theirs], PATIENCE, "nothing but the other's")

    def refused() -> None:
        with suppress(LockBusy), RECIPES["multilock"](timeout=0):
            pass

    interrupt_everywhere(refused, technique.SoftLimit, only_theirs_is_left)
    holder.now(lock.release)


@pytest.mark.parametrize("recipe", ["mutex", "handoff", "read", "write", "leader"])
def test_an_exception_before_any_line_of_a_reentry_leaves_the_outer_block_alone(
    tree: Tree, recipe: str
) -> None:
    def acquire_and_release() -> None:
        lock = RECIPES[recipe](timeout=5)
        lock.acquire()
        try:
            lock.release()
        except BaseException:
            if depth() > 1:  # it never began: a release can be repeated
                lock.release()
            raise

    def depth() -> int:
        return sum(held.count for held in current().held.values())

    with RECIPES[recipe](timeout=5) as hold:
        for call in (block_of(recipe), acquire_and_release):
            for step in itertools.count(1):
                interruption = technique.Interruption(step, technique.SoftLimit)
                with suppress(technique.SoftLimit), interruption:
                    call()
                assert depth() == 1, f"interrupted at {interruption.landed}"
                if not interruption.landed:
                    break
            assert step > 20
        hold.check()
    nothing_is_left(tree)


def with_frames_left(frames: int, call: Callable[[], None]) -> None:
    """Make a call with so many frames left before the recursion limit."""
    limit = sys.getrecursionlimit()
    depth = len(list(traceback.walk_stack(None)))
    sys.setrecursionlimit(depth + frames)
    try:
        call()
    finally:
        sys.setrecursionlimit(limit)


def test_a_recursion_error_at_any_depth_slows_down_no_call(tree: Tree) -> None:
    """One at some line comes again in the handler of that line, other than a signal's exception."""
    parents(tree)
    await_connection()
    call = block_of("mutex")
    call()
    refused = 0
    for frames in range(5, 40):
        with within(PROMPT_SECONDS):
            with suppress(RecursionError):
                refused += 1
                with_frames_left(frames, call)
                refused -= 1
            call()
    assert 5 < refused < 35
    current().release_all()
    nothing_is_left(tree)
