"""An exception before any line of any recipe leaves nothing, and the next acquire is prompt.

RecursionError and MemoryError may come from any line, as may what a signal handler raises. The next
acquire is measured because of a wake-up that an exception once swallowed: every later acquire took
3 s.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import traceback
import typing
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import close_old_connections, connection, transaction

from distlock import zk_lease, zk_lock, zk_semaphore
from distlock.lease.hold import _blocks
from distlock.owner.owner import current
from tests.interrupts.recipes import (
    KEY,
    RECIPES,
    TTL,
    attempt_of,
    block_in_block,
    block_of,
    decorated,
    everything,
    lease_in_lease,
    nothing_is_left,
    parents,
    read_inside_write,
    several,
    without_a_block,
)
from tests.interrupts.technique import PACKAGE, Interruption, SoftLimit, interrupt_everywhere
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, settle, within

#: How long an acquire may take after an interrupted one: a new connection, and no timeout.
PROMPT_SECONDS = 2.0


CALLS: dict[str, Callable[[], None]] = {
    "handoff": block_of("handoff"),
    **{recipe: block_of(recipe) for recipe in RECIPES},
    **{
        f"attempt of {recipe}": attempt_of(recipe) for recipe in ("mutex", "semaphore", "multilock")
    },
    "a writer that reads": read_inside_write,
    "several without a block": several,
    "without a block": without_a_block,
    "handoff without a block": partial(without_a_block, "handoff"),
    "lease without a block": partial(without_a_block, "lease", owner="me"),
    "a block in a block": block_in_block,
    "a lease in a lease": lease_in_lease,
    "decorated": decorated,
}
#: What the standard library has in Python, and these run through, can be interrupted as well.
FILES = {
    "a lease in a lease": (PACKAGE, contextlib.__file__, typing.__file__),
    "decorated": (PACKAGE, contextlib.__file__),
}


@pytest.mark.parametrize("error", first_then_deep([SoftLimit, RecursionError]))
@pytest.mark.parametrize("name", first_then_deep(CALLS))
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

    files = FILES.get(name, (PACKAGE,))
    seen = interrupt_everywhere(call, error, nothing_is_left_and_the_next_is_prompt, files)
    assert {"requests.py", "serving.py"} <= seen


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rolls_back", first_then_deep([False, True]))
def test_an_exception_before_any_line_ends_a_lock_with_its_transaction(
    tree: Tree, rolls_back: bool
) -> None:
    """Or with the connection, which Django closes after a request that left autocommit off."""

    def transact() -> None:
        with transaction.atomic():
            with zk_lock(KEY, until="commit"):
                Group.objects.update_or_create(name="packers")
            transaction.set_rollback(rolls_back)

    def nothing_is_left_and_the_next_is_prompt() -> None:
        assert not connection.in_atomic_block
        if not connection.autocommit:
            close_old_connections()
            connection.autocommit = True  # a database in memory is not closed
        assert not current().held
        with within(PROMPT_SECONDS):
            transact()
        nothing_is_left(tree)

    parents(tree)
    await_connection()
    transact()
    seen = interrupt_everywhere(transact, SoftLimit, nothing_is_left_and_the_next_is_prompt)
    assert {"transactions.py", "mutex.py"} <= seen


@pytest.mark.deep
@pytest.mark.parametrize("name", ["mutex", "handoff", "without a block", "lease", "multilock"])
def test_an_exception_before_any_line_of_a_refused_call_leaves_nothing(
    tree: Tree, make_owner: MakeOwner, name: str
) -> None:
    parents(tree)
    await_connection()
    locks: dict[str, Any] = {
        "lease": zk_lease(KEY, TTL, owner="you", using="other"),
        "multilock": zk_semaphore("key-2", 1, using="other"),
    }
    holder, lock = make_owner(), locks.get(name, zk_lock(KEY, using="other"))
    assert holder.now(lock.acquire)
    settle(await_connection("other"))  # who has a permit still leaves the queue for it
    theirs = everything(tree)
    call = CALLS[name] if name == "without a block" else block_of(name, timeout=0)

    def only_theirs_is_left() -> None:
        assert not current().held
        assert not _blocks
        eventually(lambda: everything(tree) == theirs, PATIENCE, "nothing but the other's")
        assert lock.locked()

    interrupt_everywhere(call, SoftLimit, only_theirs_is_left)
    holder.now(lock.release)
    nothing_is_left(tree)


@pytest.mark.deep
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
                interruption = Interruption(step, SoftLimit)
                with suppress(SoftLimit), interruption:
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


@pytest.mark.deep
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
