"""What is asked for too late: at the end of Python, of a thread, of a task."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from distlock import zk_leader, zk_lock
from distlock.owner.owner import current
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection

pytestmark = pytest.mark.usefixtures("tree")

# The object is destroyed with its module, when no thread of Python's runs any more.
LOCKS_IN_DEL = """
import sys
from concurrent.futures import ThreadPoolExecutor
from tests.kit.tools import await_connection, set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_lock

class Last:
    def __del__(self, zk_lock=zk_lock, print=print):
        try:
            zk_lock("key", timeout=None).acquire()
        except BaseException as error:
            print(type(error).__name__, flush=True)

last = Last()
with zk_lock("another"):
    pass
"""


def test_a_lock_that_is_taken_when_python_ends_is_refused_at_once(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with spawn_python(LOCKS_IN_DEL, zookeeper.hosts, tree.namespace) as process:
        output, _ = process.communicate(timeout=PATIENCE)
        assert output.strip() == "LockUnavailable"


def test_a_thread_that_ends_with_a_lock_held_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await_connection()
    left: list[Any] = []

    def work() -> None:
        zk_lock("key").acquire()
        zk_lock("released").acquire()
        zk_lock("released").release()
        left.extend(held.grant for held in current().held.values())

    thread = threading.Thread(target=work, name="forgetful")
    with caplog.at_level(logging.ERROR, "distlock"):
        thread.start()
        thread.join(PATIENCE)
    assert [record.getMessage()[:65] for record in caplog.records] == [
        "The thread forgetful has ended and left the lock 'key' held. Nobo"
    ]
    for place in left:
        place.leave()


def test_a_leader_with_nothing_to_call_is_refused_before_it_queues(tree: Tree) -> None:
    with pytest.raises(TypeError, match="a function"):
        zk_leader("beat").run(None)  # type: ignore[arg-type]
    assert not tree.children(f"{tree.namespace}/%leader:beat")


def test_a_question_that_is_not_waited_for_is_no_exception_that_nobody_fetched(
    make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused task asks who is the holder, and the server may be slow to answer."""
    await_connection()
    holder = make_owner()
    lock = zk_lock("key", using="other")
    assert holder.now(lock.acquire)
    session = await_connection()
    unanswered: list[Any] = []
    monkeypatch.setattr(session, "read", lambda _, done: unanswered.append(done))
    complaints: list[dict[str, Any]] = []

    async def refused() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: complaints.append(facts))
        monkeypatch.setattr("distlock.session.patience.ANSWER_SECONDS", 0.4)
        with pytest.raises(Exception, match="busy"):
            async with zk_lock("key", timeout=0.1):
                pass
        for done in unanswered:
            done(None, ConnectionError("too late"))
        await asyncio.sleep(0.05)

    started = time.monotonic()
    asyncio.run(refused())
    assert time.monotonic() - started < PATIENCE
    assert unanswered
    assert not complaints
    holder.now(release_all_of_this_thread)


def test_a_soft_time_limit_while_a_refused_caller_asks_for_the_holder_is_raised(
    make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an Exception, and once made the lock busy instead."""
    holder = make_owner()
    assert holder.now(zk_lock("key", using="other").acquire)
    session = await_connection()

    def interrupted(*_: object) -> None:
        raise SoftTimeLimitExceeded

    monkeypatch.setattr(session, "read", interrupted)
    with pytest.raises(SoftTimeLimitExceeded), zk_lock("key", timeout=0.1):
        pass
    holder.now(release_all_of_this_thread)


def release_all_of_this_thread() -> None:
    current().release_all()
