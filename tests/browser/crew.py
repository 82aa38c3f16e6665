"""Those who hold locks and wait for them while the page is looked at."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from distlock import DistlockError, escape_key, zk_lock
from distlock.owner.owner import label
from tests.browser.chromium import PATIENCE
from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from typing_extensions import Self


class Worker(threading.Thread):
    """Takes a lock, and keeps it until `leave`, or until it is asked to release it or loses it.

    :ivar holds: whether it has the lock
    :ivar error: why it has it no more, where that was not its own will
    """

    def __init__(self, key: str, work: str) -> None:
        super().__init__(name=f"worker {work}", daemon=True)
        self.key = key
        self.work = work
        self.holds = False
        self.asked = False
        self.error: DistlockError | None = None
        self._leave = threading.Event()

    def run(self) -> None:
        lock = zk_lock(escape_key(self.key), timeout=PATIENCE * 3, on_revoke=self._on_revoke)
        try:
            with label(self.work), lock as hold:
                self.holds = True
                while not self._leave.wait(0.02):
                    hold.check()
        except DistlockError as error:
            self.error = error
        finally:
            self.holds = False

    def _on_revoke(self, _: Any) -> None:
        self.asked = True
        self._leave.set()

    def leave(self) -> None:
        self._leave.set()
        self.join(PATIENCE * 3)


class Crew:
    """All workers of a test; those who are left at its end go home."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The last first: nobody is granted a lock only to give it back.
        for worker in reversed(self._workers):
            worker._leave.set()
        for worker in self._workers:
            worker.leave()

    def hold(self, key: str, work: str = "a long job") -> Worker:
        """Let somebody take a free lock."""
        worker = self._start(key, work)
        eventually(lambda: worker.holds or worker.error, PATIENCE, f"{work} holds {key}")
        assert worker.error is None
        return worker

    def wait(self, key: str, work: str = "another job") -> Worker:
        """Let somebody wait for a lock."""
        before = len(zk_lock(escape_key(key)).participants())
        worker = self._start(key, work)
        eventually(
            lambda: len(zk_lock(escape_key(key)).participants()) > before, PATIENCE, f"{work} waits"
        )
        return worker

    def _start(self, key: str, work: str) -> Worker:
        worker = Worker(key, work)
        self._workers.append(worker)
        worker.start()
        return worker
