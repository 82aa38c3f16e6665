"""A participant is asked to leave, and decides: Curator's ``Revoker`` and ``Revocable``.

With Java on the other side: ``tests/interop/test_java_revocation.py``.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from distlock import Mutex, revoke, zk_lock, zk_locked
from distlock.engine.deadline import Heartbeat
from distlock.keys.znodes import asks_to_leave
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree
from tests.revocation.conftest import Asked

pytestmark = [pytest.mark.usefixtures("patient", "tree"), pytest.mark.engines("zookeeper", "redis")]


def ask_holder(using: str = "other") -> bool:
    """Ask whoever holds "key" to leave, over the session of somebody else."""
    return revoke(zk_lock("key", using=using).holder(), using=using)


def await_heartbeat() -> None:
    deadline = session_for().deadline
    until = deadline._until
    eventually(lambda: deadline._until > until, PATIENCE, "a heartbeat")


def test_revoking(make_owner: MakeOwner) -> None:
    """Curator's testRevoking: a holder that heeds the request makes way for one who waits."""
    holder, waiter = make_owner(), make_owner()
    asked, holds = threading.Event(), threading.Event()

    def hold_until_asked() -> bool:
        with zk_lock("key", on_revoke=lambda _: asked.set()):
            holds.set()
            return asked.wait(PATIENCE)

    heeded = holder.submit(hold_until_asked)
    assert holds.wait(PATIENCE)
    granted = waiter.submit(zk_lock("key", using="other").acquire, timeout=PATIENCE)
    assert ask_holder()
    assert heeded.result(PATIENCE)
    assert granted.result(PATIENCE)
    waiter.now(zk_lock("key", using="other").release)


def test_the_holder_is_asked_with_its_lock_in_a_thread_of_its_own(asked: Asked) -> None:
    lock = zk_lock("key", on_revoke=asked)
    with lock:
        assert ask_holder()
        asked.times(1)
    assert asked[0] == (lock, "distlock-revoke")


def test_a_callback_that_blocks_stops_neither_heartbeats_nor_other_locks(
    make_owner: MakeOwner,
) -> None:
    inside, done = threading.Event(), threading.Event()

    def block(_: Mutex) -> None:
        inside.set()
        done.wait(PATIENCE * 2)

    with zk_lock("key", on_revoke=block) as hold:
        try:
            assert ask_holder()
            assert inside.wait(PATIENCE)
            for _ in range(2):
                await_heartbeat()
            rival, another = make_owner(), zk_lock("another")
            assert rival.now(another.acquire)
            rival.now(another.release)
            hold.check()
        finally:
            done.set()


@pytest.mark.parametrize("using", ["default", "other"])
def test_a_waiter_is_asked_while_it_is_queued_and_keeps_its_place(
    tree: Tree, holder: Owner, make_owner: MakeOwner, asked: Asked, using: str
) -> None:
    waiter, lock = make_owner(), zk_lock("key", using=using, on_revoke=asked)
    granted = waiter.submit(lock.acquire, timeout=PATIENCE)
    line = tree.await_line("key", 2)
    assert revoke(zk_lock("key").participants()[1])
    asked.times(1)
    assert tree.line("key") == line
    assert not granted.done()
    holder.now(zk_lock("key", using="other").release)
    assert granted.result(PATIENCE)
    assert revoke(lock.holder())
    asked.times(2)
    waiter.now(lock.release)


def test_of_two_in_one_process_the_one_that_is_meant_is_asked(
    tree: Tree, make_owner: MakeOwner, asked: Asked
) -> None:
    holder, waiter, others = make_owner(), make_owner(), type(asked)()
    holder.now(zk_lock("key", on_revoke=others).acquire)
    granted = waiter.submit(zk_lock("key", on_revoke=asked).acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    assert revoke(zk_lock("key").participants()[1])
    asked.times(1)
    assert ask_holder()
    others.times(1)
    asked.times(1)
    holder.now(zk_lock("key").release)
    assert granted.result(PATIENCE)
    waiter.now(zk_lock("key").release)


def test_one_without_a_callback_goes_on_and_still_notices_that_its_lock_is_broken(
    tree: Tree,
) -> None:
    with pytest.raises(Exception, match="lost"), zk_lock("key") as hold:  # noqa: PT012
        assert ask_holder()
        assert asks_to_leave(tree.client.get(hold.path)[0])
        hold.verify()
        tree.client.delete(hold.path)
        eventually(lambda: hold.lost, PATIENCE, "a lost hold")


def test_the_first_acquire_of_an_owner_says_whom_to_ask(asked: Asked) -> None:
    inner = type(asked)()
    with zk_lock("key", on_revoke=asked), zk_lock("key", on_revoke=inner):
        assert ask_holder()
        asked.times(1)
    assert not inner


@pytest.mark.engines("zookeeper")  # nodes in Redis have no ACL
def test_each_request_is_told_once_however_often_the_node_changes(tree: Tree, asked: Asked) -> None:
    with zk_lock("key", on_revoke=asked) as hold:
        for number in range(1, 4):
            assert ask_holder()
            asked.times(number)
            tree.client.set(hold.path, b"something else")
            tree.client.set_acls(hold.path, tree.client.get_acls(hold.path)[0])
    asked.times(3)


def test_a_callback_that_fails_is_logged_and_the_lock_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Only its owner releases a lock, and the callback's thread is not that.
    with zk_lock("key", on_revoke=lambda lock: lock.release()) as hold:
        assert ask_holder()
        eventually(lambda: "NotOwner" in caplog.text, PATIENCE, "a line in the log")
        hold.verify()
    assert "on_revoke of zk_lock('key', using='default') failed" in caplog.text


# --- who is there --------------------------------------------------------------------------------


def test_a_key_is_no_participant() -> None:
    key: Any = "report"
    with pytest.raises(TypeError, match=r"zk_lock\(.*\).holder\(\)"):
        revoke(key)


def test_whoever_has_left_cannot_be_asked(tree: Tree, asked: Asked) -> None:
    lock = zk_lock("key", on_revoke=asked)
    with lock:
        mine = lock.holder()
    tree.await_line("key", 0)
    assert not revoke(mine)
    assert not revoke(lock.holder())  # nobody
    assert not asked


# --- what is left, and what it costs --------------------------------------------------------------


def test_a_short_hold_that_is_not_revocable_costs_no_watch(
    tree: Tree, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heartbeat, "_beat", lambda _: None)
    with zk_lock("key"):
        pass
    tree.await_line("key", 0)
    requests.clear()
    with zk_lock("key"):
        pass
    assert "GetData" not in requests
    tree.await_line("key", 0)
    requests.clear()
    with zk_lock("key", on_revoke=print):
        pass
    assert "GetData" in requests


# --- other ways to ask for it ---------------------------------------------------------------------


@pytest.mark.parametrize("fair", [True, False], ids=["fair", "not fair"])
def test_a_decorated_function_is_asked(asked: Asked, fair: bool) -> None:
    @zk_locked("<name>", on_revoke=asked, fair=fair)
    def work(name: str) -> None:
        assert name == "key"
        assert ask_holder()
        asked.times(1)

    work("key")
    assert asked[0].lock.key == "key"


async def _coroutine_function(lock: Mutex) -> None:
    """What no thread can call."""


@pytest.mark.parametrize(
    "on_revoke", [42, "asked", _coroutine_function], ids=["42", "text", "async"]
)
def test_an_on_revoke_that_no_thread_can_call_is_refused(on_revoke: Any) -> None:
    with pytest.raises(TypeError, match="on_revoke must be a function"):
        zk_lock("key", on_revoke=on_revoke)
    with pytest.raises(TypeError, match="on_revoke must be a function"):
        zk_locked("key", on_revoke=on_revoke)
