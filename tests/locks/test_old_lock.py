"""``BESIDE``: the lock that a site moves away from, here redis-py's, is taken around ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, states
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from redis import Redis as Client
from redis.exceptions import LockNotOwnedError

from distlock import LockBusy, lock_contended, zk_lock, zk_locked, zk_multilock
from distlock.locks.mutex import Mutex
from tests.interrupts.recipes import KEY, nothing_is_left, parents
from tests.interrupts.technique import SoftLimit, SoftTimeLimit, interrupt_everywhere
from tests.kit.losses import SetOptions
from tests.kit.services import Redis
from tests.kit.tools import MakeOwner, Owner, Tree, await_connection
from tests.mutex.test_signals_and_looking import received
from tests.tasks.tools import Traced

pytestmark = [pytest.mark.usefixtures("beside"), pytest.mark.engines("zookeeper", "redis")]

client: Client


def old_lock(key: str) -> Any:
    """What the settings name: a lock of redis-py but for three keys."""
    if key == "on other servers":
        return zk_lock(key, using="other")
    if key == "wrong":
        return SimpleNamespace(acquire=lambda **_: None)
    return None if key == "new" else client.lock(f"old:{key}", timeout=60, thread_local=False)


@pytest.fixture
def beside(tree: Tree, set_options: SetOptions, redis: Redis) -> Iterator[None]:
    global client
    del tree
    set_options(BESIDE=f"{__name__}.old_lock")
    with Client.from_url(redis.new_database()) as client:
        yield


def busy(key: str = KEY) -> bool:
    locked: bool = old_lock(key).locked()
    return locked


@zk_locked("<key>")
def decorated(key: str) -> bool:
    return busy(key)


@zk_locked("<key>")
async def a_decorated(key: str) -> bool:
    return busy(key)


def in_a_block() -> bool:
    with zk_lock(KEY):
        return busy()


def in_an_attempt() -> bool:
    with zk_lock(KEY).attempt():
        return busy()


def with_others() -> bool:
    with zk_multilock("a", KEY):
        return busy() and busy("a")


def between_two_calls() -> bool:
    lock = zk_lock(KEY)
    assert lock.acquire()
    try:
        return busy()
    finally:
        lock.release()


async def in_an_async_block() -> bool:
    async with zk_lock(KEY):
        return busy()


WAYS: dict[str, Callable[[], bool]] = {
    "block": in_a_block,
    "attempt": in_an_attempt,
    "multilock": with_others,
    "calls": between_two_calls,
    "decorator": partial(decorated, KEY),
    "async block": lambda: asyncio.run(in_an_async_block()),
    "async decorator": lambda: asyncio.run(a_decorated(KEY)),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_old_lock_is_held_as_long_as_ours(way: str) -> None:
    assert WAYS[way]()
    assert not busy()
    assert not busy("a")


def test_a_lock_is_entered_again_without_the_old_one() -> None:
    async def main() -> None:
        async with zk_lock(KEY), zk_lock(KEY, timeout=0):
            pass

    with zk_lock(KEY), zk_lock(KEY, timeout=0), zk_lock(KEY).attempt(timeout=0) as hold:
        assert hold is not None
    asyncio.run(main())
    assert not busy()


def test_a_key_may_have_no_old_lock() -> None:
    with zk_lock("new", timeout=0) as hold:
        assert hold.token


@pytest.mark.django_db(transaction=True)
def test_a_transaction_keeps_both() -> None:
    with transaction.atomic():
        with zk_lock(KEY, until="commit"):
            pass
        assert busy()
    assert not busy()


def test_the_old_lock_may_be_ours_on_other_servers(tree: Tree, set_options: SetOptions) -> None:
    set_options("other", NAMESPACE=f"{tree.namespace}-other")
    lock, old = zk_lock("on other servers"), zk_lock("on other servers", using="other")

    async def main() -> None:
        async with lock:
            assert old.held

    with lock:
        assert old.held
    asyncio.run(main())
    assert not old.held


def test_a_busy_old_lock_is_a_busy_lock() -> None:
    with old_lock(KEY), received(lock_contended) as told:
        lock = zk_lock(KEY, timeout=0.2)
        with pytest.raises(LockBusy, match="old lock beside 'key'") as refused, lock:
            pass
        assert 0.2 <= refused.value.waited < 2
        assert not lock.acquire()
        with lock.attempt() as hold:
            assert hold is None
        assert not lock.locked()
    assert len(told) == 3
    with lock:
        pass


@pytest.mark.parametrize("way", WAYS)
def test_the_wait_ends_when_the_old_lock_is_free(way: str, make_owner: MakeOwner) -> None:
    old = old_lock(KEY)
    assert old.acquire()
    waiting = make_owner().submit(WAYS[way])
    tries = client.info("commandstats")["cmdstat_set"]["calls"]
    while client.info("commandstats")["cmdstat_set"]["calls"] < tries + 2:
        pass
    old.release()
    assert waiting.result(20)


def test_the_old_lock_is_given_back_if_ours_is_busy(holder: Owner) -> None:
    del holder
    lock = zk_lock(KEY, timeout=0)
    assert not lock.acquire()
    assert not busy()
    with pytest.raises(LockBusy, match="held by"), lock:
        pass
    assert not busy()


def test_the_end_of_a_block_raises_what_the_old_lock_raises() -> None:
    lock = zk_lock(KEY, timeout=0)
    with pytest.raises(LockNotOwnedError), lock:
        client.delete(f"old:{KEY}")  # it has expired
    assert not lock.locked()
    with lock:
        pass


def test_a_lock_that_does_not_tell_whether_it_is_held_is_refused() -> None:
    with pytest.raises(TypeError, match="synchronous one"), zk_lock("wrong"):
        pass


@pytest.mark.parametrize("path", ["tests.no_such_module.f", "redis", "tests.kit.table.TABLE", 7])
def test_a_path_that_leads_to_no_function_is_refused(set_options: SetOptions, path: Any) -> None:
    set_options(BESIDE=path)
    with pytest.raises(ImproperlyConfigured, match="dotted path"):
        zk_lock(KEY).acquire()


def test_a_task_is_put_off_while_the_old_lock_is_busy() -> None:
    with Celery("app", broker="memory://", backend="cache+memory://", set_as_current=False) as app:

        @zk_locked(KEY)
        def work() -> None: ...

        task = app.task(work, shared=False)
        with old_lock(KEY):
            assert Traced(task).state == states.RETRY
        assert Traced(task).state == states.SUCCESS


@pytest.mark.engines("zookeeper")
@pytest.mark.parametrize("error", [SoftLimit, SoftTimeLimit])
@pytest.mark.parametrize("way", ["block", "attempt", "calls", "decorator"])
def test_an_exception_before_any_line_leaves_no_old_lock(
    tree: Tree, way: str, error: type[BaseException]
) -> None:
    parents(tree)
    await_connection()

    def call() -> None:
        lock = Mutex(KEY, zk_lock(KEY).options)
        try:
            WAYS[way]()
        except BaseException:
            if way == "calls" and lock.held:  # a release can be repeated
                with suppress(RuntimeError):
                    lock.release()
            raise

    def nothing() -> None:
        assert not busy()
        nothing_is_left(tree)

    assert "old_lock.py" in interrupt_everywhere(call, error, nothing)
