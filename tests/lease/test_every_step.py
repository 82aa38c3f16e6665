"""An exception at every single step of a persistent lease leaves nothing (promise 4).

A lease that stays by mistake stays for its whole `ttl`, with nobody to end it. By the technique,
and with the exceptions, of tests/deadline/test_every_step.py; besides, in what the standard library
has in Python and a block runs through.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import linecache
import typing
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from distlock import LockBusy, zk_lease
from distlock.lease.hold import _blocks
from distlock.lease.persistent import PersistentLease
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from tests.deadline import test_every_step as technique
from tests.deadline.test_every_step import (
    KEY,
    PACKAGE,
    SoftLimit,
    SoftTimeLimit,
    interrupt_everywhere,
)
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, Tree, await_connection, forgets_all
from tests.lease.tools import LONG, node_path, said

pytestmark = pytest.mark.deep


EXIT = PersistentLease.__exit__.__code__
BODY_OF_EXIT = 1 + next(
    number
    for number in itertools.count(EXIT.co_firstlineno)
    if linecache.getline(EXIT.co_filename, number).strip() == "try:"
)

#: Made once, as a module has it: what one call leaves in it, the next one finds.
LEASE = zk_lease(KEY, LONG, timeout=0)
OWNED = zk_lease(KEY, LONG, owner="me", timeout=0)


@pytest.fixture(autouse=True)
def _of_leases(monkeypatch: pytest.MonkeyPatch, tree: Tree) -> None:
    out_of_reach = technique.out_of_reach

    def also(frame: FrameType) -> bool:
        return out_of_reach(frame) or (frame.f_code is EXIT and frame.f_lineno < BODY_OF_EXIT)

    def nothing_is_left(tree: Tree, _: list[str]) -> None:
        session = session_for()
        eventually(lambda: said(tree, KEY) is None, PATIENCE, "a lease that was given back")
        for lease in (LEASE, OWNED):
            assert not lease.held
        assert not _blocks
        assert beneficiaries(session) == 0
        forgets_all(session)

    monkeypatch.setattr(technique, "PACKAGE", (PACKAGE, contextlib.__file__, typing.__file__))
    monkeypatch.setattr(technique, "out_of_reach", also)
    monkeypatch.setattr(technique, "nothing_is_left", nothing_is_left)
    tree.client.create(node_path(tree, "keeps-the-parents"), b"", makepath=True)


def block() -> None:
    with LEASE as hold:
        assert hold.valid_for() > 0


def nested_blocks() -> None:
    with OWNED, zk_lease(KEY, LONG, owner="me") as hold:
        assert hold.valid_for() > 0


def acquire_and_release() -> None:
    try:
        if OWNED.acquire():
            OWNED.release()
    except BaseException:
        if OWNED.held:  # it never began, or nobody knows: a release can be repeated
            with suppress(RuntimeError):
                OWNED.release()
        raise


@pytest.mark.parametrize("error", [SoftLimit, SoftTimeLimit])
@pytest.mark.parametrize("call", [nested_blocks, acquire_and_release])
def test_an_exception_before_any_line_of_a_call_leaves_nothing(
    tree: Tree, call: Callable[[], None], error: type[BaseException]
) -> None:
    steps = interrupt_everywhere(tree, call, error)
    assert len(steps) > 80
    assert {"persistent.py", "operation.py", "programs.py", "requests.py"} <= {
        step.partition(":")[0] for step in steps
    }


def test_an_exception_before_any_line_of_a_block_keeps_the_lease_of_its_owner(tree: Tree) -> None:
    """What the owner had before the block, an interrupted beginning does not take away."""
    assert OWNED.acquire()
    token = (said(tree, KEY) or {}).get("token")
    kept: list[Any] = []

    def call() -> None:
        began = False
        try:
            with OWNED:
                began = True
        except BaseException:
            kept.append(began or said(tree, KEY) is not None)
            raise
        finally:
            OWNED.acquire()

    def ends_with_its_block(tree: Tree, _: list[str]) -> None:
        assert not _blocks
        with OWNED:
            assert len(_blocks) == 1
        eventually(lambda: said(tree, KEY) is None, PATIENCE, "a block that releases")
        assert OWNED.acquire()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(technique, "nothing_is_left", ends_with_its_block)
        assert len(interrupt_everywhere(tree, call, SoftLimit)) > 80
    assert all(kept)
    assert token is None or isinstance(token, int)
    OWNED.release()


def test_an_exception_before_any_line_of_a_refused_block_leaves_nothing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = zk_lease(KEY, LONG, owner="you", using="other")
    assert theirs.acquire()

    def nothing_but_theirs(tree: Tree, _: list[str]) -> None:
        session = session_for()
        assert (said(tree, KEY) or {})["owner"] == "you"
        assert not _blocks
        eventually(lambda: beneficiaries(session) == 0, PATIENCE)
        forgets_all(session)

    def refused() -> None:
        with suppress(LockBusy):
            block()

    monkeypatch.setattr(technique, "nothing_is_left", nothing_but_theirs)
    assert len(interrupt_everywhere(tree, refused, SoftLimit)) > 80
    theirs.release()


# --- tasks ---------------------------------------------------------------------------------------


def test_a_block_interrupted_in_an_outage_is_given_back_after_it(
    tree: Tree, link: TcpProxy
) -> None:
    """The request that gives it back waits for the connection; it is not forgotten."""

    async def use() -> None:
        async with LEASE:
            await asyncio.to_thread(link.cut)
            await asyncio.to_thread(
                eventually, lambda: not session_for().connected, PATIENCE, "a cut"
            )
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(0.05, task.cancel)

    await_connection()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(use())
    assert said(tree, KEY) is not None
    assert not LEASE.held
    link.pass_through()
    eventually(lambda: said(tree, KEY) is None, PATIENCE, "a lease that was given back")
