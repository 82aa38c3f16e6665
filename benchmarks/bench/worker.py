"""A process of contenders that do as they are told; `Worker.java` is the same for Curator.

Run as ``python -m benchmarks.bench.worker SERVERS`` (in JSON). It says "ready"; then orders come
line by line on stdin, and its end is the order to end. Each is answered by a line of JSON.

    run NAME=VALUE…         let threads take locks; the names are those of `Order`
    hold LIBRARY KEY        take a lock and keep it
    let_go LIBRARY KEY      give it back
    reentry SECONDS         time reentry, in nanoseconds, in several ways
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from benchmarks.bench.libraries import Libraries, Lock
from benchmarks.bench.witness import Witness


@dataclass(frozen=True)
class Order:
    """What the threads of one process are to do.

    :ivar keys: how many; each time a thread takes one of them at random
    :ivar prefix: what the keys begin with
    :ivar start: when to begin, in nanoseconds of CLOCK_MONOTONIC, one clock for all processes
    :ivar seconds: how long to go on
    :ivar count: how often each thread takes a lock at most, 0 for any number
    :ivar hold: how long to hold it, in seconds
    :ivar refused: whether to try only, and in vain
    :ivar witness: the file of the witness
    :ivar first: the number of the first contender
    """

    library: str
    threads: int
    keys: int
    prefix: str
    start: int
    seconds: float
    count: int
    hold: float
    refused: int
    witness: str
    first: int

    @classmethod
    def parse(cls, words: list[str]) -> Order:
        values = dict(word.split("=", 1) for word in words)
        kinds: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
        fields = cls.__dataclass_fields__.values()
        return cls(**{field.name: kinds[str(field.type)](values[field.name]) for field in fields})

    def words(self) -> str:
        return " ".join(f"{name}={value}" for name, value in vars(self).items())


class Worker:
    """Has a thread for each contender, which keeps its lock objects from run to run."""

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._threads: list[Caller] = []
        self._locks = threading.local()

    def obey(self, order: str) -> dict[str, Any]:
        match order.split():
            case "run", *words:
                return self._run(Order.parse(words))
            case "hold", library, key:
                self._thread(0).submit(lambda: self._lock(library, key).acquire()).result()
                return {}
            case "let_go", library, key:
                self._thread(0).submit(lambda: self._lock(library, key).release()).result()
                return {}
            case "reentry", seconds:
                run = self._thread(0).submit(reentry, self._libraries, float(seconds))
                return dict(run.result())
        raise ValueError(f"What does this mean: {order!r}?")

    def _run(self, order: Order) -> dict[str, Any]:
        began = time.process_time()
        runs = [
            self._thread(index).submit(self._contend, order, order.first + index)
            for index in range(order.threads)
        ]
        results = [run.result() for run in runs]
        found = {name: [result[name] for result in results] for name in results[0]}
        return found | {"processor": [time.process_time() - began]}

    def _contend(self, order: Order, number: int) -> dict[str, Any]:
        locks = [self._lock(order.library, f"{order.prefix}{key}") for key in range(order.keys)]
        witness = Witness(Path(order.witness), number)
        # It need not be a secret which key is next.
        any_key = random.Random(number).randrange  # noqa: S311
        ends = order.start + int(order.seconds * 1e9)
        entries = in_time = 0
        cycles: list[int] = []
        time.sleep(max(order.start - time.monotonic_ns(), 0) / 1e9)
        began = time.monotonic_ns()
        now = began
        while now < ends and not (order.count and entries == order.count):
            key = any_key(order.keys)
            if order.refused:
                if locks[key].attempt():
                    witness.overlaps += 1
            else:
                locks[key].acquire()
                witness.enter(key)
                if order.hold:
                    time.sleep(order.hold)
                witness.leave(key)
                locks[key].release()
            entries += 1
            before, now = now, time.monotonic_ns()
            cycles.append(now - before)
            in_time += now <= ends
        return {
            "entries": entries,
            "in_time": in_time,
            "cycle": statistics.median(cycles or [0]) / 1e9,
            "overlaps": witness.overlaps,
            "idle": witness.idle,
        }

    def _lock(self, library: str, key: str) -> Lock:
        locks: dict[str, Lock] = vars(self._locks)
        name = f"{library} {key}"
        if name not in locks:
            locks[name] = self._libraries.lock(library, key)
        return locks[name]

    def _thread(self, index: int) -> Caller:
        while len(self._threads) <= index:
            self._threads.append(Caller())
        return self._threads[index]


class Caller(threading.Thread):
    """A thread that makes calls, one owner of locks; the jobs of a pool would each be one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]]
        self._calls = SimpleQueue()
        self.start()

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, call, args))
        return future

    def run(self) -> None:
        while True:
            future, call, args = self._calls.get()
            try:
                future.set_result(call(*args))
            except BaseException as error:  # noqa: BLE001 - for who waits for it
                future.set_exception(error)


def reentry(libraries: Libraries, seconds: float) -> dict[str, float]:
    """Return the nanoseconds of each kind of reentry, measured by turns for so long in all."""
    from distlock import zk_lock  # noqa: PLC0415 - needs the settings, which `libraries` has made

    mutex, rlock = libraries.lock("distlock", "reentry"), threading.RLock()
    locked = libraries.lock("decorated", "reentry")

    def block() -> None:
        with zk_lock("reentry"):
            pass

    kinds = {
        "RLock": (rlock.acquire, rlock.release),
        "distlock": (mutex.acquire, mutex.release),
        "with zk_lock": (block, locked.release),
        "zk_locked": (locked.acquire, locked.release),
    }
    turns, times = 10, 200
    took = dict.fromkeys(kinds, 0)
    done = dict.fromkeys(kinds, 0)
    mutex.acquire()
    rlock.acquire()
    for _ in range(turns):
        for kind, (acquire, release) in kinds.items():
            ends = time.perf_counter_ns() + int(seconds / turns / len(kinds) * 1e9)
            began = time.perf_counter_ns()
            while time.perf_counter_ns() < ends:
                for _ in range(times):
                    acquire()
                    release()
                done[kind] += times
            took[kind] += time.perf_counter_ns() - began
    rlock.release()
    mutex.release()
    return {kind: took[kind] / done[kind] for kind in kinds}


def main() -> None:
    worker = Worker(Libraries(json.loads(sys.argv[1])))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for order in sys.stdin:
        sys.stdout.write(json.dumps(worker.obey(order)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001 - whatever it is, the log has it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)  # the servers go, too: no need to say good-bye
