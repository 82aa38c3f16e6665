"""The line is strictly first come, first served, and a release wakes one waiter (promise 2).

Each waiter has an event of its own (CURATOR-716). The successor of one who gave up in the middle
looks again, and does not believe that it holds.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from distlock import zk_lock
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pytest_django import Settings


pytestmark = pytest.mark.usefixtures("tree")


def line_up(
    tree: Tree, make_owner: MakeOwner, aliases: list[str]
) -> list[tuple[Owner, Future[bool]]]:
    """Let a new owner of each alias wait, one behind the other."""
    waiters = []
    for using in aliases:
        owner, length = make_owner(), len(tree.line("key"))
        waiters.append((owner, owner.submit(zk_lock("key", using=using).acquire, timeout=PATIENCE)))
        tree.await_line("key", length + 1)
    return waiters


def test_a_release_sends_something_to_one_waiting_client_only(
    tree: Tree, two_sessions: Settings, make_owner: MakeOwner
) -> None:
    default = {**two_sessions.DISTLOCK["default"], "SESSION_TIMEOUT": 20}  # no ping in between
    aliases = ["default", *(f"client-{number}" for number in range(5))]
    two_sessions.DISTLOCK = dict.fromkeys(aliases, default)
    with ExitStack() as stack:
        sessions = {using: await_connection(using).id for using in aliases[1:]}
        stack.enter_context(zk_lock("key"))
        waiters = line_up(tree, make_owner, aliases[1:])
        eventually(lambda: len(tree.watches()) == len(waiters))
        before = packets(tree)
        stack.close()
        assert waiters[0][1].result(PATIENCE)
        after = packets(tree)
    quiet = [using for using, sid in sessions.items() if before[sid] == after[sid]]
    assert quiet == aliases[2:]
    for using, (owner, granted) in zip(aliases[1:], waiters, strict=True):
        assert granted.result(PATIENCE)
        owner.now(zk_lock("key", using=using).release)


def packets(tree: Tree) -> dict[int, int]:
    """How many packets the server has sent to each session."""
    connections = tree.client.command(b"cons")
    return {
        int(sid, 16): int(sent)
        for sent, sid in re.findall(r"sent=(\d+),sid=(0x[0-9a-f]+)", connections)
    }
