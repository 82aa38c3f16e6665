"""The owner in threaded code is the thread, and never its number alone; in async code, the task.

Thread idents are reused, after a fork too, and coroutines share one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from distlock import zk_lock
from distlock.conf import Configuration
from distlock.owner import owner as module
from distlock.owner.owner import Owner, current, label
from tests.kit.helpers import logged
from tests.owner.calls import owner, run


def in_a_thread(function: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(10)


def test_an_owner_whose_making_was_interrupted_ends_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    Owner.__new__(Owner)
    assert not ignored


def test_a_thread_with_the_number_of_one_that_has_ended_is_another_owner() -> None:
    owners: dict[int | None, Owner] = {}
    found: list[Owner] = []
    for _ in range(200):  # most systems recycle a number at once
        thread = threading.Thread(target=lambda: found.append(current()))
        thread.start()
        thread.join()
        if thread.ident in owners:
            assert owners[thread.ident] is not found[-1]
            return
        owners[thread.ident] = found[-1]
    pytest.fail("No thread number was recycled, so this test has shown nothing.")


def test_a_thread_that_runs_in_a_copied_context_is_another_owner() -> None:
    """Django's and anyio's worker threads copy the context of their caller, the mark with it."""
    mine = current()
    assert in_a_thread(lambda: copy_context().run(current)) is not mine
    context = copy_context()
    assert in_a_thread(lambda: context.run(current)) is not mine
    assert copy_context().run(current) is mine


def test_what_a_context_changed_in_another_thread_does_not_change_the_owner_here() -> None:
    mine = current()
    context = copy_context()
    in_a_thread(lambda: context.run(current))
    assert context.run(current) is not in_a_thread(current)
    assert current() is mine


def test_each_job_of_a_pool_is_an_owner() -> None:
    """Two tasks that call ``run_in_executor`` may get one thread."""
    with ThreadPoolExecutor(1) as pool:
        first, again = pool.submit(lambda: (current(), current())).result(10)
        assert first is again
        assert pool.submit(current).result(10) is not first


def test_a_lock_in_the_initializer_of_a_pool_does_not_make_its_jobs_one_owner() -> None:
    with ThreadPoolExecutor(1, initializer=current) as pool:
        first, again = pool.submit(lambda: (current(), current())).result(10)
        assert first is again
        assert pool.submit(current).result(10) is not first


@pytest.mark.parametrize("served", [False, True])
def test_the_callback_of_a_job_is_one_owner_and_not_that_of_the_next_job(served: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[Owner] = []

    def job() -> None:
        begun.set()
        go_on.wait(10)
        if served:  # asgiref leaves its mark in the thread
            async_to_sync(sync_to_async(lambda: None))()

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(job)
        assert begun.wait(10)
        run.add_done_callback(lambda _: seen.extend((current(), current())))
        go_on.set()
        following = pool.submit(current).result(10)  # after the callback
    (owner,) = {id(one): one for one in seen}.values()
    assert following is not owner


def test_a_context_that_a_job_has_copied_does_not_make_the_next_job_its_owner() -> None:
    with ThreadPoolExecutor(1) as pool:
        first, context = pool.submit(lambda: (current(), copy_context())).result(10)
        assert pool.submit(context.run, current).result(10) is not first


def test_a_job_whose_first_lock_is_taken_in_a_copied_context_is_one_owner() -> None:
    assert in_a_thread(lambda: copy_context().run(current) is current())


def test_the_label_ends_with_its_block_and_stays_in_its_thread() -> None:
    with label("GET /buy/42"):
        assert json.loads(current().describe())["label"] == "GET /buy/42"
        with label("inner"):
            assert json.loads(current().describe())["label"] == "inner"
        assert b"GET" not in in_a_thread(lambda: current().describe())  # type: ignore[operator]
    assert json.loads(current().describe())["label"] == ""


def test_the_node_data_tells_no_more_than_it_says() -> None:
    said = json.loads(current().describe())
    assert set(said) == {"v", "owner", "host", "pid", "worker", "label", "since"}
    assert (said["pid"], said["worker"]) == (os.getpid(), threading.current_thread().name)
    assert set(json.loads(current().describe(Configuration(node_data="owner")))) == {"v", "owner"}


def test_the_node_data_is_small_whatever_the_thread_is_called() -> None:
    """A megabyte would make the server close the connection that all locks of the process share."""
    found: list[bytes] = []

    def describe() -> None:
        with label("\udcff" * 100_000):
            found.append(current().describe())

    thread = threading.Thread(target=describe, name="é" * 2_000_000)
    thread.start()
    thread.join()
    assert len(found[0]) < 5_000


def test_a_forked_child_is_another_owner_and_holds_nothing() -> None:
    mine = current()
    read, write = os.pipe()
    mine.held[("default", "stock:42")] = object()  # type: ignore[assignment]
    try:
        pid = os.fork()
        if pid == 0:
            owner = current()
            os.write(write, b"other" if owner.id != mine.id and not owner.held else b"same")
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(read, 100) == b"other"
        assert current() is mine
    finally:
        mine.held.clear()
        os.close(read)
        os.close(write)


@pytest.mark.usefixtures("distlock_settings")
def test_a_lock_that_a_job_leaves_held_keeps_the_next_job_out_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock = zk_lock("k")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lock.acquire).result(10)
        assert pool.submit(lock.acquire, timeout=0).result(10) is False
    (said,) = (line for line in logged(caplog) if "has ended" in line)
    assert "The job in the thread ThreadPoolExecutor" in said
    assert "left the lock 'k' held" in said


# --- in async code the owner is the task ---------------------------------------------------------
# Two coroutines share a thread; context variables are copied to child tasks.


def test_a_task_is_another_owner_than_the_thread_it_runs_in() -> None:
    mine = current()

    async def main() -> None:
        assert current() is not mine

    run(main)
    assert current() is mine


def test_a_child_that_outlives_its_parent_is_another_owner() -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def child() -> Owner:
            await go_on.wait()
            return current()

        async def parent() -> tuple[Owner, asyncio.Task[Owner]]:
            return current(), asyncio.create_task(child())

        first, left = await asyncio.create_task(parent())
        go_on.set()
        assert await left is not first

    run(main)


def test_owners_are_forgotten_with_their_tasks() -> None:
    async def main() -> None:
        await asyncio.gather(*(owner() for _ in range(50)))

    gc.collect()
    before = len(module._of_task)
    run(main)
    gc.collect()
    assert len(module._of_task) <= before
