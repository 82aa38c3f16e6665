"""The worker processes, each behind TCP proxies of its own, one for each server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlock_chaos.proxy import TcpProxy

from .worker import marker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

    from distlock_chaos.server import Server

    from .history import History


class Worker:
    """One worker process and its links."""

    def __init__(self, number: int, links: Sequence[TcpProxy], options: dict[str, Any]) -> None:
        self.number = number
        self.links = links
        addresses = ",".join(link.address for link in links)
        hosts = f"redis://{addresses}/0" if options["engine"] == "redis" else addresses
        self._options = {**options, "hosts": hosts, "seed": f"{options['seed']}-{number}"}
        self._folder = Path(options["folder"])
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        with (self._folder / "workers.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker", json.dumps(self._options)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
            )

    @property
    def pid(self) -> int:
        """The id of the process of the moment."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there; a stopped one is."""
        return self._process.poll() is None

    @property
    def server(self) -> int | None:
        """The number of the server that it is connected to."""
        return next((number for number, link in enumerate(self.links) if link.connections), None)

    @property
    def ready(self) -> bool:
        """Whether it works, and takes signals."""
        return marker(self._folder, self.pid, "ready").exists()

    @property
    def quiet(self) -> bool:
        """Whether all its threads have finished their work, as ordered."""
        return marker(self._folder, self.pid, "quiet").exists()

    def order(self, what: str, *details: Any) -> None:
        """Tell the process to do something; nothing happens when it is gone."""
        if self._process.stdin is not None:
            with suppress(OSError, ValueError):
                self._process.stdin.write(json.dumps([what, *details]) + "\n")
                self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._process.kill()
        self._process.wait()
        self.let_end()

    def restart(self) -> None:
        """Start a new process in the place of the one that is gone."""
        self._process = self._start()

    def end(self, deadline: float) -> bool:
        """Await its end, by force at the deadline; tell whether it ended by itself."""
        try:
            return self._process.wait(max(deadline - time.monotonic(), 0)) == 0
        except subprocess.TimeoutExpired:
            self.kill_stuck()
            return False

    def kill_stuck(self) -> None:
        """SIGKILL, after it has written where its threads are into the workers' log."""
        self._process.send_signal(signal.SIGUSR2)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)  # it does not end by this: it gets the time to write
        self.kill()

    def let_end(self) -> None:
        """Order the process to end."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()


class Fleet:
    """All workers of a run; none outlives the block."""

    def __init__(
        self, size: int, servers: Sequence[Server], options: dict[str, Any], history: History
    ) -> None:
        self.workers: list[Worker] = []
        self._size = size
        self._servers = servers
        self._options = options
        self._history = history
        self._links = ExitStack()

    def __enter__(self) -> Self:
        try:
            for number in range(self._size):
                links = [
                    self._links.enter_context(TcpProxy("127.0.0.1", server.port))
                    for server in self._servers
                ]
                self.workers.append(Worker(number, links, self._options))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for worker in self.workers:
            worker.kill()
        self._links.close()

    def with_pid(self, pid: int | None) -> Worker | None:
        """Return the worker whose process it is."""
        return next((worker for worker in self.workers if worker.pid == pid), None)

    def died(self) -> Iterator[int]:
        """Yield the process ids of workers that have ended of themselves."""
        return (worker.pid for worker in self.workers if not worker.running)

    def end(self, seconds: float) -> None:
        """Let all end in order, and write down who did not."""
        deadline = time.monotonic() + seconds
        running = [worker for worker in self.workers if worker.running]
        for worker in running:
            worker.let_end()
        for worker in running:
            pid = worker.pid
            if not worker.end(deadline):
                self._history.say("stuck", pid=pid)
