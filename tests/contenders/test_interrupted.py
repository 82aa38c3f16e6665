"""An exception at every single step, while others of the process wait for the lock (promise 4).

As tests/interrupts/test_every_line.py, where nobody waits. A release that was interrupted is done
again, and the next in line must be woken: it would not look by itself before long.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial

import pytest

from distlock import zk_lock
from distlock.owner.owner import current
from distlock.session import patience
from distlock.session.registry import session_for
from tests.contenders.tools import KEY, Waiter, members, served
from tests.interrupts.technique import Interruption, SoftLimit
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection, forgets_all

pytestmark = pytest.mark.usefixtures("patient", "tree")


@pytest.fixture(autouse=True)
def _nobody_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOOK_SECONDS", 3600.0)


@pytest.fixture(autouse=True)
def _parents(tree: Tree) -> None:
    tree.client.ensure_path(f"{tree.path(KEY)}/keeps-the-parents")
    await_connection()


def nothing_is_left(tree: Tree, line: int = 0) -> None:
    """As the original, but a batch leaves the line after the call."""
    session = session_for()
    assert not current().held
    tree.await_line(KEY, line)
    eventually(lambda: not beneficiaries(session), PATIENCE, "nobody who needs the deadline")
    forgets_all(session)


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
