"""The processes of contenders, and what they have done."""

from __future__ import annotations

import json
import queue
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import witness
from benchmarks.bench.libraries import SESSION_TIMEOUT
from benchmarks.bench.worker import Order
from benchmarks.curator import command
from distlock_chaos.guard import GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

    from benchmarks.bench.servers import Servers
    from benchmarks.bench.works import Contender, Work

ROOT = Path(__file__).resolve().parent.parent.parent
JAVA = Path(__file__).with_name("Worker.java")
# Unlike the contenders that are to start quickly, these are to run quickly.
_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
#: How long an answer may take beyond the time of a run, in seconds.
PATIENCE = 60.0


class Failed(Exception):
    """A process of contenders has ended, or has not answered in time."""


@dataclass(frozen=True)
class Done:
    """What the contenders of one run have done.

    :ivar entries: how often they took the lock
    :ivar in_time: how often within the time, by contender
    :ivar cycles: seconds from one release to the next, the median of each contender
    :ivar overlaps: how often two held one lock, or an update was lost
    :ivar idle: seconds that the lock was nobody's, at each hand-off
    :ivar processor: seconds of processor time that their processes took
    :ivar requests: what was sent to the servers; None where nobody counts
    """

    entries: int
    in_time: list[int]
    cycles: list[float]
    overlaps: int
    idle: list[float]
    processor: float
    requests: int | None = None


class Process:
    """One process: `worker` or ``Worker.java``."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._log = log
        self._process = GuardedProcess(arguments, output=log, cwd=ROOT, piped=True)
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def tell(self, order: str) -> None:
        with suppress(BrokenPipeError):  # it has ended; `listen` tells why
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()

    def listen(self, timeout: float = PATIENCE) -> str:
        try:
            if answer := self._answers.get(timeout=timeout):
                return answer
            why = "has ended"
        except queue.Empty:
            why = f"has not answered for {timeout:g} s"
        raise Failed(f"A process of contenders {why}.\n{self._log.read_text()[-3000:]}")

    def close(self) -> None:
        self._process.send(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        with suppress(BrokenPipeError):  # an order that it has not read
            self._process.stdin.close()
        self._process.stdout.close()


class Pool:
    """Processes that are started when they are first needed, and end with the block.

    :param hosts: a way to ZooKeeper other than straight to the servers
    """

    def __init__(self, servers: Servers, folder: Path, *, hosts: str = "") -> None:
        self._servers = servers
        self._folder = folder
        self._hosts = hosts
        self._processes: dict[str, list[Process]] = {"Python": [], "Java": []}
        self._java: list[str] = []
        self._runs = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def processes(self, language: str, number: int) -> list[Process]:
        """Return so many processes.

        :raises CuratorMissing: Java's cannot be had
        """
        running = self._processes[language]
        started = []
        while len(running) < number:
            log = self._folder / f"{language}-{len(running)}.log"
            process = Process(self._command(language), log)
            self._stack.callback(process.close)
            running.append(process)
            started.append(process)
        for process in started:
            process.listen()
        return running[:number]

    def ask(self, language: str, order: str, *, process: int = 0) -> dict[str, Any]:
        """Give one process an order and return its answer."""
        asked = self.processes(language, process + 1)[process]
        asked.tell(order)
        return _parsed(asked.listen())

    def run(self, contender: Contender, work: Work, seconds: float) -> Done:
        """Let a contender do a work once.

        :param seconds: how long to go on
        :raises Failed: one of the processes has; they are started anew for the next run
        """
        prefix = f"{work.name}-{contender.library}-".replace(" ", "")
        try:
            processes = self.processes(contender.language, work.processes + work.refused)
            with self._held(contender, f"{prefix}0") if work.refused else ExitStack():
                return self._run(contender, work, seconds, processes[: work.processes], prefix)
        except Failed:
            while self._processes[contender.language]:
                self._processes[contender.language].pop().close()
            raise

    def _run(
        self,
        contender: Contender,
        work: Work,
        seconds: float,
        processes: list[Process],
        prefix: str,
    ) -> Done:
        self._runs += 1
        path = self._folder / f"witness-{self._runs}"
        witness.create(path, work.keys)
        # Time for all to be told; they have the time until then to make their lock objects.
        start = time.monotonic_ns() + int(1e9 * (0.05 + 0.005 * len(processes)))
        before = self._servers.requests(contender.kept)
        for index, process in enumerate(processes):
            order = Order(
                library=contender.library,
                threads=work.threads,
                keys=work.keys,
                prefix=prefix,
                start=start,
                seconds=PATIENCE if work.count else seconds,
                count=work.count,
                hold=work.hold,
                refused=int(work.refused),
                witness=str(path),
                first=1 + index * work.threads,
            )
            process.tell(f"run {order.words()}")
        answers = [_parsed(process.listen(seconds + PATIENCE)) for process in processes]
        after = self._servers.requests(contender.kept)
        done = _of_all(answers)
        if not work.refused and contender.witnessed:
            lost = done.entries - witness.counted(path)
            done = replace(done, overlaps=done.overlaps + lost)
        path.unlink()
        if before is None or after is None:
            return done
        return replace(done, requests=after - before)

    @contextmanager
    def _held(self, contender: Contender, key: str) -> Iterator[None]:
        """Let another process hold the lock."""
        words = f"{contender.library} {key}"
        self.ask(contender.language, f"hold {words}", process=1)
        yield
        self.ask(contender.language, f"let_go {words}", process=1)

    def _command(self, language: str) -> list[str]:
        described = self._servers.described(self._hosts)
        if language == "Java":
            if not self._java:
                self._java = command(JAVA, self._folder, jvm=_JVM)
            return [*self._java, described["zookeeper"], str(SESSION_TIMEOUT)]
        return [sys.executable, "-m", "benchmarks.bench.worker", json.dumps(described)]


def _parsed(answer: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(answer)
    return parsed


def _of_all(answers: list[dict[str, Any]]) -> Done:
    """Put the answers of all processes together; each has lists of what its threads say."""
    every = {name: [one for answer in answers for one in answer[name]] for name in answers[0]}
    return Done(
        entries=sum(every["entries"]),
        in_time=every["in_time"],
        cycles=every["cycle"],
        overlaps=sum(every["overlaps"]),
        idle=[nanos / 1e9 for idle in every["idle"] for nanos in idle],
        processor=sum(every["processor"]),
    )


def together(runs: Sequence[Done]) -> Done:
    """Put several runs of one work together."""
    requests = [run.requests for run in runs if run.requests is not None]
    return Done(
        entries=sum(run.entries for run in runs),
        in_time=[one for run in runs for one in run.in_time],
        cycles=[one for run in runs for one in run.cycles],
        overlaps=sum(run.overlaps for run in runs),
        idle=[one for run in runs for one in run.idle],
        processor=sum(run.processor for run in runs),
        requests=sum(requests) if requests else None,
    )
