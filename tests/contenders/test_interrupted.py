"""An exception at every single step, while others of the process wait for the lock (promise 4).

As tests/deadline/test_every_step.py, where nobody waits. A release that was interrupted is done
again, and the next in line must be woken: it would not look by itself before long.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from distlock import LockBusy, zk_lock
from distlock.owner.owner import current
from distlock.session import patience
from distlock.session.registry import session_for
from tests.contenders.tools import KEY, Waiter, members, served
from tests.deadline.test_every_step import Interruption, SoftLimit
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection, forgets_all

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("patient", "tree")


@pytest.fixture(autouse=True)
def _nobody_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOOK_SECONDS", 3600.0)


@pytest.fixture(autouse=True)
def _parents(tree: Tree) -> None:
    tree.client.ensure_path(f"{tree.path(KEY)}/keeps-the-parents")
    await_connection()


def acquire_and_release() -> None:
    lock = zk_lock(KEY, timeout=0, handoff=2)
    if lock.acquire():
        try:
            lock.release()
        except BaseException:
            if lock.held:
                lock.release()
            raise


def block() -> None:
    with suppress(LockBusy), zk_lock(KEY, timeout=0, handoff=2):
        pass


def nothing_is_left(tree: Tree, line: int = 0) -> None:
    """As the original, but a batch leaves the line after the call."""
    session = session_for()
    assert not current().held
    tree.await_line(KEY, line)
    eventually(lambda: not beneficiaries(session), PATIENCE, "nobody who needs the deadline")
    forgets_all(session)


def interrupt_everywhere(tree: Tree, call: Callable[[], None]) -> int:
    """Interrupt a call at each of its lines, and return how many these are."""
    line = len(tree.line(KEY))
    for step in itertools.count(1):
        interruption = Interruption(step, SoftLimit)
        with suppress(SoftLimit), interruption:
            call()
        if not interruption.landed:
            return step
        try:
            nothing_is_left(tree, line)
        except AssertionError as failure:
            raise AssertionError(f"interrupted at {interruption.landed}: {failure}") from failure
    raise AssertionError("unreachable")


@pytest.mark.parametrize("call", first_then_deep([block, acquire_and_release]))
def test_a_call_that_is_alone(tree: Tree, call: Callable[[], None]) -> None:
    assert interrupt_everywhere(tree, call) > 80


@pytest.mark.usefixtures("patient", "holder")
@pytest.mark.parametrize("call", first_then_deep([block, acquire_and_release]))
def test_a_call_that_another_process_refuses(tree: Tree, call: Callable[[], None]) -> None:
    assert interrupt_everywhere(tree, call) > 80


@pytest.mark.parametrize("timeout", [0, 0.002])
def test_a_call_that_its_own_process_refuses(
    tree: Tree, make_owner: MakeOwner, timeout: float
) -> None:
    holder: Owner = make_owner()
    assert holder.now(zk_lock(KEY, handoff=1).acquire)
    waiters = [Waiter(tree, make_owner, handoff=3) for _ in range(2)]
    lock = zk_lock(KEY, handoff=3)
    for step in itertools.count(1):
        interruption = Interruption(step, SoftLimit)
        with suppress(SoftLimit), interruption:
            assert not lock.acquire(timeout=timeout)
        if not interruption.landed:
            break
        where = f"interrupted at {interruption.landed}: as many waiters as before"
        eventually(lambda: members(tree) == len(waiters), PATIENCE, where)
    assert step > 80
    holder.now(zk_lock(KEY, handoff=1).release)
    for waiter in waiters:
        waiter.release()
    nothing_is_left(tree)


@pytest.mark.deep
@pytest.mark.parametrize(("holders", "waiters"), [(0, [0, 2]), (1, [1, 1]), (3, [3, 0])], ids=repr)
def test_a_release_for_which_others_wait(
    tree: Tree, make_owner: MakeOwner, holders: int, waiters: list[int]
) -> None:
    lock = zk_lock(KEY, handoff=holders)
    owners = [make_owner() for _ in waiters]
    for step in itertools.count(1):
        assert lock.acquire()
        waiting_ = {
            f"{place}": Waiter(tree, partial(lambda owner: owner, owner), handoff=handoff)
            for place, (owner, handoff) in enumerate(zip(owners, waiters, strict=True))
        }
        interruption = Interruption(step, SoftLimit)
        with suppress(SoftLimit), interruption:
            try:
                lock.release()
            except BaseException:
                if lock.held:  # it never began, or can be repeated
                    lock.release()
                raise
        try:
            served(waiting_)
            nothing_is_left(tree)
        except BaseException as failure:
            raise AssertionError(f"interrupted at {interruption.landed}: {failure!r}") from failure
        if not interruption.landed:
            break
    assert step > 20
