"""A finaliser that takes a lock, run by the garbage collector on one of distlock's own threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from distlock import LockUnavailable, zk_lock, zk_semaphore
from distlock.engine.timer import call_later
from distlock.session.session import Session
from tests.kit.helpers import without_garbage_collection
from tests.kit.tools import PATIENCE, await_connection, within

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


class Collector:
    """Runs the garbage collector on the heartbeat's or the timer's thread."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def deadline_renewed(self) -> None:
        """It needs no news."""

    def report(self) -> None:
        self.session.heartbeat.dismiss(self)
        gc.collect()


def on_the_connection(collector: Collector) -> None:
    collector.session.soon(collector.report)


def on_the_heartbeat(collector: Collector) -> None:
    collector.session.heartbeat.attend(collector)
    collector.session.heartbeat.hurry()


def on_the_timer(collector: Collector) -> None:
    call_later(0, collector.report)


TAKES = {
    "mutex": lambda: zk_lock("other").acquire(timeout=3),
    "semaphore": lambda: zk_semaphore("another", 1).acquire(timeout=3),
    "holder": lambda: zk_lock("other").holder(),
}


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES.keys())
@pytest.mark.parametrize("collect", [on_the_connection, on_the_heartbeat, on_the_timer])
def test_it_is_refused_at_once_and_no_hold_is_lost(
    collect: Callable[[Collector], None], take: Callable[[], object]
) -> None:
    """Waiting there, it would wait for an answer that only this thread can read."""
    refused: SimpleQueue[tuple[threading.Thread, Exception]] = SimpleQueue()

    class Careless:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            try:
                take()
            except Exception as error:  # noqa: BLE001 - Python would print it
                refused.put((threading.current_thread(), error))

    session = await_connection()
    collector = Collector(session)
    with zk_lock("key") as hold, without_garbage_collection():
        Careless()
        with within(1):
            collect(collector)
            thread, error = refused.get(timeout=PATIENCE)
        assert thread.name.startswith(("distlock-", "Thread-"))
        assert thread is not threading.current_thread()
        assert isinstance(error, LockUnavailable)
        assert "finaliser" in str(error)
        hold.verify()
