"""``hold_at_least=``: the key stays taken, for everybody, until the time since the acquire is over.

As ShedLock's ``lockAtLeastFor``: a job that is over in no time does not run on the next host, too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.core.management import call_command

from distlock import (
    LockBusy,
    LockLost,
    LockUnavailable,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
)
from distlock.contenders import cool_down
from distlock.inspection import look
from distlock.lease import cool_downs
from distlock.locks import mutex
from distlock.session.reaper import end_session
from distlock.session.registry import session_for
from distlock.session.session import Session
from tests.interrupts.technique import Interruption, SoftLimit
from tests.kit.helpers import ROOT, eventually
from tests.kit.losses import pass_time
from tests.kit.tools import PATIENCE, Tree, await_connection, expire, inside, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock_chaos.proxy import TcpProxy
    from distlock_chaos.server import ZooKeeper
    from tests.kit.losses import SetOptions
    from tests.kit.tools import MakeOwner, Owner

pytestmark = [
    pytest.mark.usefixtures("tree"),
    pytest.mark.engines("zookeeper", "redis", postgresql=False),
]

#: Short enough to await the end; and so long that it comes in no test by itself.
SECONDS, LONG = 2.0, 600
RIVALS: dict[str, Callable[..., Any]] = {
    "mutex": lambda **how: zk_lock("key", **how),
    "of another session": lambda **how: zk_lock("key", using="other", **how),
    "unfair": lambda **how: zk_lock("key", fair=False, using="other", **how),
    "handoff": lambda **how: zk_lock("key", handoff=2, using="other", **how),
    "reader": lambda **how: zk_rwlock("key", using="other", **how).read,
    "with the option": lambda **how: zk_lock("key", hold_at_least=0.1, **how),
}


@pytest.mark.parametrize("rival", RIVALS)
def test_whoever_comes_after_a_short_block_waits(rival: str) -> None:
    lock = RIVALS[rival](timeout=PATIENCE)
    began = time.monotonic()
    with zk_lock("key", hold_at_least=SECONDS):
        pass
    assert lock.acquire()
    assert time.monotonic() - began >= SECONDS
    lock.release()


@pytest.mark.parametrize("rival", RIVALS)
def test_whoever_has_waited_before_waits_on(
    rival: str, tree: Tree, make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also who has seen the holder's node, and no cool-down yet."""
    held: list[Callable[[], None]] = []
    create = cool_down.CoolDown.create
    monkeypatch.setattr(
        cool_down.CoolDown, "create", lambda self, done: held.append(partial(create, self, done))
    )
    lock, waiter, holder = RIVALS[rival](timeout=PATIENCE), make_owner(), make_owner()
    first = zk_lock("key", hold_at_least=SECONDS, timeout=PATIENCE)
    began = time.monotonic()
    granted = holder.submit(first.acquire)
    eventually(lambda: held)
    monkeypatch.undo()
    waiting = waiter.submit(lock.acquire)
    if rival == "unfair":
        eventually(tree.watches)
    else:
        tree.await_line("key", 2)
    settle(session_for())
    settle(session_for("other"))
    session_for().soon(held[0])
    assert granted.result(PATIENCE)
    holder.now(first.release)
    assert waiting.result(PATIENCE)
    assert time.monotonic() - began >= SECONDS
    waiter.now(lock.release)


def end(key: str) -> None:
    call_command("distlock", "break", key, "-y")


def test_it_is_told_who_has_it_until_when_and_an_operator_ends_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lock = zk_lock("key", timeout=0)
    with zk_lock("key", hold_at_least=LONG):
        (seen,) = look("key").locks
        assert (seen.holding, seen.waiting) == (1, 1)
        assert seen.holders[0].participant.session_id == session_for().id
    (seen,) = look("key").locks
    assert (seen.holding, seen.waiting) == (1, 0)
    assert lock.locked()
    with pytest.raises(LockBusy, match=r"taken until 20.* UTC"), lock:
        pass
    call_command("distlock", "show", "key")
    assert "taken until 20" in capsys.readouterr().out
    end("key")
    assert not lock.locked()
    with lock:
        pass


JOB = """
import json, sys
from django.conf import settings
settings.configure(DISTLOCK=json.loads(sys.argv[1]))
from distlock import zk_lock
lock = zk_lock("key", hold_at_least=float(sys.argv[2]), timeout=0)
print(lock.acquire())
"""


def job(seconds: float) -> str:
    """A cron job on some host, which ends at once."""
    alias = {**settings.DISTLOCK["default"], "CONNECT_TIMEOUT": PATIENCE}
    command = [sys.executable, "-c", JOB, json.dumps({"default": alias}), str(seconds)]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_a_job_runs_on_one_host() -> None:
    assert [job(LONG), job(LONG)] == ["True", "False"]
    end("key")


def test_a_job_runs_again_though_nobody_was_there_at_the_end(tree: Tree) -> None:
    assert job(0.5) == "True"
    eventually(lambda: not zk_lock("key").locked())
    assert tree.lock_nodes()
    assert job(0.5) == "True"
    eventually(lambda: not zk_lock("key").locked())
    call_command("distlock", "sweep")


def test_what_nobody_asks_for_again_is_swept(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    job(0.5)
    with zk_lock("live", hold_at_least=LONG):
        pass
    eventually(lambda: not zk_lock("key").locked())
    call_command("distlock", "sweep")
    assert "Removed 1 ends of hold_at_least" in capsys.readouterr().out
    assert len(tree.lock_nodes()) == 1
    end("live")


def test_a_sweep_may_take_longer_than_a_call(
    set_options: SetOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else it would fail on a site with tens of thousands of keys."""
    set_options(CONNECT_TIMEOUT=1)
    children = Session.children

    def slowly(*args: Any, **how: Any) -> None:
        time.sleep(0.3)
        children(*args, **how)

    with zk_multilock(*"abcdef", timeout=PATIENCE):
        monkeypatch.setattr(cool_downs, "BATCH", 1)
        monkeypatch.setattr(Session, "children", slowly)
        assert cool_downs.sweep() == 0


def test_the_death_of_the_holder_changes_nothing(zookeeper: ZooKeeper) -> None:
    lock = zk_lock("key", hold_at_least=LONG)
    assert lock.acquire()
    expire(zookeeper.hosts, session_for())
    assert not zk_lock("key", using="other").acquire(timeout=0)
    with pytest.raises(LockLost):
        lock.release()
    end("key")


def test_a_call_and_a_coroutine() -> None:
    @zk_locked("key-<number>", hold_at_least=LONG, on_busy="skip", timeout=0)
    def call(number: int) -> int:
        return number

    @zk_locked("key-<number>", hold_at_least=LONG, on_busy="skip", timeout=0)
    async def acall(number: int) -> int:
        return number

    assert [call(1), call(1)] == [1, None]
    assert [asyncio.run(acall(2)), asyncio.run(acall(2))] == [2, None]
    end("key-1")
    end("key-2")


def test_a_duplicate_in_a_multilock_changes_nothing() -> None:
    with zk_multilock("key", zk_lock("key", hold_at_least=LONG), "key"):
        pass
    assert zk_lock("key").locked()
    end("key")


def test_a_lock_that_was_not_taken_in_the_end_leaves_nothing(tree: Tree) -> None:
    with zk_lock("key-2", using="other"):
        both = zk_multilock(zk_lock("key-1", hold_at_least=LONG), zk_lock("key-2", timeout=0))
        assert not both.acquire(timeout=0)
        eventually(lambda: not tree.line("key-1"))


def test_without_an_answer_there_is_no_lock(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cool_down.CoolDown, "create", lambda *_: None)
    with pytest.raises(LockUnavailable):
        zk_lock("key", hold_at_least=LONG).acquire(timeout=0)
    eventually(lambda: not tree.lock_nodes())


@pytest.mark.deep
def test_an_exception_before_any_line_of_an_acquire_leaves_nothing(tree: Tree) -> None:
    lock = zk_lock("key", hold_at_least=LONG, timeout=PATIENCE)
    await_connection()
    for step in itertools.count(1):
        interruption = Interruption(step, SoftLimit)
        with suppress(SoftLimit), interruption:
            lock.acquire()
        if lock.held:  # it landed after the end, or not at all
            lock.release()
            end("key")
        eventually(lambda: not tree.lock_nodes(), PATIENCE, interruption.landed)
        if not interruption.landed:
            break
    assert step > 80


@pytest.fixture
def link(broken_link: TcpProxy, set_options: SetOptions) -> TcpProxy:
    """The link that breaks, in use."""
    set_options(CONNECT_TIMEOUT=PATIENCE)
    await_connection()
    return broken_link


def end_on_the_server(session: Session) -> None:
    """Also one that has no connection."""
    number, password = inside(session).credentials
    end_session(session_for("other").conf, number, password, timeout=PATIENCE)


def test_an_interrupted_acquire_leaves_nothing_though_its_session_ends(
    tree: Tree, link: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the create was lost, and the node is not one that ends with the session."""
    create = cool_down.CoolDown.create

    def interrupted(self: Any, done: Any) -> None:
        link.black_hole("to_client")
        create(self, done)
        tree.await_line("key", 2)
        link.cut()
        eventually(lambda: not session.connected, PATIENCE)
        raise SoftLimit

    session = session_for()
    monkeypatch.setattr(cool_down.CoolDown, "create", interrupted)
    with pytest.raises(SoftLimit):
        zk_lock("key", hold_at_least=LONG).acquire()
    before = session.id
    end_on_the_server(session)
    tree.await_line("key", 1)
    link.pass_through()
    eventually(lambda: not tree.lock_nodes(), PATIENCE)
    assert session.id != before


def test_an_acquire_that_was_cancelled_in_an_outage_makes_nothing_after_it(
    link: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    create = Session.create_persistent

    def record(self: Session, path: str, *args: Any, **how: Any) -> None:
        made.append(path)
        create(self, path, *args, **how)

    async def acquire() -> None:
        task = asyncio.current_task()
        assert task is not None

        def cut_and_cancel(*how: Any) -> cool_down.CoolDown:
            link.cut()
            eventually(lambda: not session_for().connected, PATIENCE)
            asyncio.get_running_loop().call_soon(task.cancel)
            return cool_down.CoolDown(*how)

        monkeypatch.setattr(mutex, "CoolDown", cut_and_cancel)
        await zk_lock("key", hold_at_least=LONG).aacquire()

    monkeypatch.setattr(Session, "create_persistent", record)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(acquire())
    link.pass_through()
    await_connection()
    settle(session_for())
    assert not made


def test_it_lasts_as_long_after_a_lost_answer_in_another_session(
    tree: Tree, link: TcpProxy, holder: Owner, make_owner: MakeOwner
) -> None:
    """It is counted from the server's time at the creation of the later node."""
    lock, job = zk_lock("key", hold_at_least=SECONDS, timeout=PATIENCE), make_owner()
    granted = job.submit(lock.acquire)
    tree.await_line("key", 2)
    pass_time(SECONDS)
    create = Session.create_ephemeral

    def unanswered(*args: Any, **how: Any) -> None:
        link.black_hole("to_client")
        create(*args, **how)

    before = tree.line("key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "create_ephemeral", unanswered)
        end_on_the_server(session_for())
        eventually(lambda: tree.await_line("key", 2) != before, PATIENCE, "another node")
    link.cut()
    eventually(lambda: not session_for().connected, PATIENCE)
    link.pass_through()
    began = time.monotonic()
    holder.now(zk_lock("key", using="other").release)
    assert granted.result(PATIENCE)
    job.now(lock.release)
    with zk_lock("key", using="other", timeout=PATIENCE):
        assert time.monotonic() - began >= SECONDS


@pytest.mark.parametrize("how", [{"fair": False}, {"handoff": 1}, {"hold_at_least": 0}])
def test_what_makes_no_sense_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="hold_at_least"):
        zk_lock("key", **{"hold_at_least": 1, **how})
    with pytest.raises(ValueError, match="hold_at_least"):
        zk_locked("key", mode="read", hold_at_least=1)
