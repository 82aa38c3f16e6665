"""The measurements: each with a server of its own, and real sessions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kazoo.client import KazooClient

from benchmarks.bench.pool import Process
from benchmarks.bench.servers import counters
from distlock_chaos.server import Server, ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

#: How many sessions one process carries.
CROWD = 125
#: Seconds; what a Django process has unless it is told otherwise.
SESSION_TIMEOUT = 10
#: For the line: so long that no heartbeat is counted there.
NO_HEARTBEAT = 7200
#: How long all may take to be as expected, in seconds.
PATIENCE = 900.0
# The server looks for idle parents every second, and may remove as many as there are; by default it
# looks once a minute and removes 10,000 at most.
JVM = ("-Xmx1g", "-Dznode.container.maxPerMinute=6000000")


class Line(NamedTuple):
    """What one acquire costs while others wait: milliseconds, and requests of all."""

    waiters: int
    milliseconds: float
    requests: float


class Keys(NamedTuple):
    """What so many locks cost that one session holds at a time.

    :ivar taken, released: milliseconds of each
    :ivar nodes, watches: on the server, beyond what there was before
    :ivar memory: bytes of each on the server: of its two nodes and its watch
    :ivar left: nodes in the end, beyond what there was before
    :ivar cleared: seconds from the last release until then
    """

    keys: int
    taken: float
    released: float
    nodes: int
    watches: int
    memory: float
    left: int
    cleared: float


class Sessions(NamedTuple):
    """What so many sessions cost: bytes of each, and requests of all per second.

    :ivar opened: milliseconds of each
    """

    sessions: int
    opened: float
    memory: float
    idle: float
    holding: float
    watches: int


def line(waiters: int, seconds: float, folder: Path) -> Line:
    """Let so many wait, each with a session of its own, while one after another gets its turn."""
    limits = {"maxSessionTimeout": str(NO_HEARTBEAT * 1000)}
    with _server(limits) as server, crowds(server, NO_HEARTBEAT, waiters + 1, folder) as crowd:
        tell(crowd, "join")
        # Of a line that moves on, a few are just not in it.
        until(lambda: counters(server)["zk_ephemerals_count"] >= 0.9 * waiters)
        time.sleep(seconds / 4)
        before, began = _sent(server), time.monotonic()
        acquired = -tell(crowd, "look")
        time.sleep(seconds)
        acquired += tell(crowd, "look")
        took = time.monotonic() - began
        requests = _sent(server) - before - 1
        return Line(waiters, 1000 * took / acquired, requests / acquired)


def keys(number: int, folder: Path) -> Keys:
    """Let one session hold so many locks, and give them back."""
    with _server() as server, crowds(server, SESSION_TIMEOUT, 1, folder) as crowd:
        start = counters(server)
        tell(crowd, "hold 1")  # all that is loaded once is loaded
        tell(crowd, "release")
        until(lambda: counters(server)["zk_znode_count"] <= start["zk_znode_count"])
        memory = heap(server)
        began = time.monotonic()
        tell(crowd, f"hold {number}")
        taken = time.monotonic() - began
        # From the first heartbeat on, each holder watches its own node.
        until(lambda: counters(server)["zk_watch_count"] >= number)
        held, after = counters(server), heap(server)
        began = time.monotonic()
        tell(crowd, "release")
        until(lambda: counters(server)["zk_ephemerals_count"] == 0)
        released = time.monotonic() - began
        until(lambda: counters(server)["zk_znode_count"] <= start["zk_znode_count"])
        end = counters(server)
        return Keys(
            number,
            taken=1000 * taken / number,
            released=1000 * released / number,
            nodes=held["zk_znode_count"] - start["zk_znode_count"],
            watches=held["zk_watch_count"],
            memory=(after - memory) / number,
            left=end["zk_znode_count"] - start["zk_znode_count"],
            cleared=time.monotonic() - began - released,
        )


def sessions(number: int, seconds: float, folder: Path) -> Sessions:
    """Open so many sessions, which do nothing; then let each hold a lock."""
    with _server() as server:
        memory = heap(server)
        began = time.monotonic()
        with crowds(server, SESSION_TIMEOUT, number, folder) as crowd:
            opened = time.monotonic() - began
            idle = _rate(server, seconds)
            each = (heap(server) - memory) / number
            tell(crowd, "hold 1")
            until(lambda: counters(server)["zk_watch_count"] >= number)
            holding = _rate(server, seconds)
            watches = counters(server)["zk_watch_count"]
            return Sessions(number, 1000 * opened / number, each, idle, holding, watches)


def writes(number: int = 5000) -> float:
    """Return how many nodes a server can create or delete in a second, many at a time."""
    with _server() as server:
        client = KazooClient(server.address)
        client.start()
        client.create("/writes")
        best = 0.0
        for _ in range(3):
            began = time.monotonic()
            made = [client.create_async(f"/writes/{one}") for one in range(number)]
            gone = [client.delete_async(f"/writes/{one}") for one in range(number)]
            for answer in (*made, *gone):
                answer.get()
            best = max(best, 2 * number / (time.monotonic() - began))
        client.stop()
        client.close()
        return best


# --- how -----------------------------------------------------------------------------------------


@contextmanager
def _server(config: dict[str, str] | None = None) -> Iterator[Server]:
    with ZooKeeper(config=config, jvm=JVM) as zookeeper:
        yield zookeeper.servers[0]


@contextmanager
def crowds(server: Server, timeout: float, number: int, folder: Path) -> Iterator[list[Process]]:
    """Processes with so many sessions in all; they end with the block."""
    command = [sys.executable, "-m", "benchmarks.growth.sessions", server.address, f"{timeout}"]
    with ExitStack() as stack:
        crowd = []
        for first in range(0, number, CROWD):
            some = min(CROWD, number - first)
            process = Process([*command, str(some)], folder / f"{number}-{first}.log")
            stack.callback(process.close)
            crowd.append(process)
        for process in crowd:
            process.listen(PATIENCE)
        yield crowd


def tell(crowd: list[Process], order: str) -> int:
    """Give all an order, and return how often they have taken a lock by now."""
    for process in crowd:
        process.tell(order)
    return sum(int(process.listen(PATIENCE)) for process in crowd)


def until(condition: Callable[[], bool]) -> None:
    """Wait for it.

    :raises TimeoutError: it did not come
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Something did not come within {PATIENCE:g} s.")
        time.sleep(0.01)


def heap(server: Server) -> int:
    """Return the bytes of the server's objects, after a garbage collection."""
    if jcmd := shutil.which("jcmd"):
        asked = [jcmd, str(server.pid), "GC.class_histogram"]
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        if found := re.search(r"(?m)^Total +\d+ +(\d+)", said):
            return int(found[1])
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _sent(server: Server) -> int:
    return counters(server)["zk_packets_received"]


def _rate(server: Server, seconds: float) -> float:
    before, began = _sent(server), time.monotonic()
    time.sleep(seconds)
    return (_sent(server) - before - 1) / (time.monotonic() - began)
