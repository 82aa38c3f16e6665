"""Threads and tasks on a real server against a model: a reentrant mutex with a queue, first come
first served.

Hypothesis chooses who does what, one step at a time: enter, enter again, try, wait, give up by
time-out, be cancelled in the middle of the line, release, release too often.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from distlock import LockUnavailable, NotOwner, zk_lock
from distlock.owner.owner import current
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock import Mutex


class ThreadOwner:
    """A thread that does what it is asked, one thing at a time."""

    def __init__(self) -> None:
        self._asked: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.id: str = self.ask(lambda: current().id).result(PATIENCE)

    def ask(self, what: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        self._asked.put((what, answer))
        return answer

    def acquire(self, lock: Mutex, **options: Any) -> Future[Any]:
        return self.ask(lambda: lock.acquire(**options))

    def stop(self) -> None:
        self._asked.put(None)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            what, answer = asked
            try:
                answer.set_result(what())
            except (NotOwner, LockUnavailable) as error:
                answer.set_exception(error)


class TaskOwner:
    """A task that does what it is asked, and can be cancelled in the midst of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: asyncio.Queue[tuple[Callable[[], Any], Future[Any]] | None] = asyncio.Queue()
        self._running = asyncio.run_coroutine_threadsafe(self._run(), loop)
        self.id: str = self.ask(lambda: current().id).result(PATIENCE)

    def ask(self, what: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._asked.put_nowait, (what, answer))
        return answer

    def acquire(self, lock: Mutex, **options: Any) -> Future[Any]:
        return self.ask(lambda: lock.aacquire(**options))

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._asked.put_nowait, None)
        self._running.result(PATIENCE)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        while (asked := await self._asked.get()) is not None:
            what, answer = asked
            try:
                result = what()
                answer.set_result(await result if asyncio.iscoroutine(result) else result)
            except (NotOwner, LockUnavailable) as error:
                answer.set_exception(error)
            except asyncio.CancelledError:
                answer.set_result("cancelled")


Owner = ThreadOwner | TaskOwner


@dataclass
class Line:
    """The model of one key: who holds it how often, and who waits for it since when."""

    key: str
    holder: Owner | None = None
    count: int = 0
    waiting: list[tuple[Owner, Future[Any]]] = field(default_factory=list)

    @property
    def order(self) -> list[str]:
        holder = [] if self.holder is None else [self.holder.id]
        return holder + [owner.id for owner, _ in self.waiting]


class Locks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.owners: list[Owner] = [
            ThreadOwner(),
            ThreadOwner(),
            TaskOwner(self.loop),
            TaskOwner(self.loop),
        ]
        self.lines = [Line(f"a:{uuid4()}"), Line(f"b:{uuid4()}")]

    keys = st.sampled_from([0, 1])
    numbers = st.integers(0, 3)

    @rule(number=numbers, key=keys)
    def acquire(self, number: int, key: int) -> None:
        owner, line = self.owners[number], self.lines[key]
        if self.waits(owner) or (line.holder not in {None, owner} and self.would_deadlock(owner)):
            return
        answer = owner.acquire(zk_lock(line.key), timeout=None)
        if line.holder in {None, owner}:
            assert answer.result(PATIENCE) is True
            self.enter(line, owner)
        else:
            line.waiting.append((owner, answer))

    @rule(number=numbers, key=keys, timeout=st.sampled_from([None, 0, 0.05]))
    def try_for_a_moment(self, number: int, key: int, timeout: float | None) -> None:
        owner, line = self.owners[number], self.lines[key]
        if self.waits(owner):
            return
        options = {"blocking": False} if timeout is None else {"timeout": timeout}
        started = time.monotonic()
        try:
            granted = owner.acquire(zk_lock(line.key), **options).result(PATIENCE)
        except LockUnavailable:  # the server was slow; the other rules see that nothing is left
            assert time.monotonic() - started > 0.3
            return
        assert granted is (line.holder in {None, owner})
        if granted:
            self.enter(line, owner)

    @rule(number=numbers, key=keys)
    def release(self, number: int, key: int) -> None:
        owner, line = self.owners[number], self.lines[key]
        if self.waits(owner):
            return
        answer = owner.ask(zk_lock(line.key).release)
        if line.holder is owner:
            assert answer.result(PATIENCE) is None
            self.leave(line)
        else:
            with pytest.raises(NotOwner):
                answer.result(PATIENCE)

    @precondition(lambda self: any(line.waiting for line in self.lines))
    @rule(data=st.data())
    def be_cancelled_while_waiting(self, data: Any) -> None:
        found = [
            (line, owner, answer)
            for line in self.lines
            for owner, answer in line.waiting
            if isinstance(owner, TaskOwner)
        ]
        if found:
            line, owner, answer = data.draw(st.sampled_from(found))
            owner.cancel()
            assert answer.result(PATIENCE) == "cancelled"
            line.waiting.remove((owner, answer))

    @invariant()
    def the_server_shows_the_line_of_the_model(self) -> None:
        for line in self.lines:
            lock = zk_lock(line.key)
            eventually(
                lambda: [one.owner_id for one in lock.participants()] == line.order,  # noqa: B023
                timeout=PATIENCE,
                message=f"{line.order} in line",
            )

    @invariant()
    def whoever_holds_says_so_and_nobody_else(self) -> None:
        for line in self.lines:
            lock = zk_lock(line.key)
            for owner in self.owners:
                if not self.waits(owner):
                    held = owner.ask(lambda: lock.held).result(PATIENCE)  # noqa: B023
                    assert held is (line.holder is owner)

    @invariant()
    def nobody_is_granted_out_of_turn(self) -> None:
        assert not any(answer.done() for line in self.lines for _, answer in line.waiting)

    def teardown(self) -> None:
        try:
            for line in self.lines * 2:  # a waiter for one may hold the other
                while line.holder is not None and not self.waits(line.holder):
                    line.holder.ask(zk_lock(line.key).release).result(PATIENCE)
                    self.leave(line)
            for line in self.lines:
                assert line.order == []
                eventually(lambda: not zk_lock(line.key).locked())  # noqa: B023
        finally:
            for owner in self.owners:
                owner.stop()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(PATIENCE)
            self.loop.close()

    # --- the model -------------------------------------------------------------------------------

    def waits(self, owner: Owner) -> bool:
        return any(owner is waiting for line in self.lines for waiting, _ in line.waiting)

    def would_deadlock(self, owner: Owner) -> bool:
        """Whether somebody already waits for what `owner` holds: two keys in two orders."""
        return any(line.holder is owner and line.waiting for line in self.lines)

    def enter(self, line: Line, owner: Owner) -> None:
        line.holder = owner
        line.count += 1

    def leave(self, line: Line) -> None:
        line.count -= 1
        if line.count == 0:
            line.holder = None
            if line.waiting:
                owner, answer = line.waiting.pop(0)
                assert answer.result(PATIENCE) is True
                self.enter(line, owner)


@pytest.mark.usefixtures("distlock_settings")
def test_threads_and_tasks_behave_like_the_model() -> None:
    run_state_machine_as_test(
        Locks,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            # Shrinking a failure that shows by waiting would take an hour.
            phases=[Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
