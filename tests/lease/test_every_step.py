"""An exception at any step of a block of a persistent lease (promise 4).

A lease that stays by mistake stays for its whole `ttl`, with nobody to end it. That nothing stays
of one that its owner did not have before is in tests/interrupts/test_every_line.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distlock import zk_lease
from distlock.lease.hold import _blocks
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from tests.interrupts.recipes import KEY, OWNED
from tests.interrupts.technique import SoftLimit, interrupt_everywhere
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree, await_connection
from tests.lease.tools import LONG, node_path, said

pytestmark = pytest.mark.deep

LEASE = zk_lease(KEY, LONG, timeout=0)


def test_an_exception_before_any_line_of_a_block_keeps_the_lease_of_its_owner(tree: Tree) -> None:
    """What the owner had before the block, an interrupted beginning does not take away."""
    await_connection()
    tree.client.create(node_path(tree, "keeps-the-parents"), b"", makepath=True)
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

    def ends_with_its_block() -> None:
        assert not _blocks
        with OWNED:
            assert len(_blocks) == 1
        eventually(lambda: said(tree, KEY) is None, PATIENCE, "a block that releases")
        assert OWNED.acquire()

    interrupt_everywhere(call, SoftLimit, ends_with_its_block)
    assert all(kept)
    assert token is None or isinstance(token, int)
    OWNED.release()


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
