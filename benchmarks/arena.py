"""Where a fault happens: a server, and contenders that are each behind a proxy of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent

#: What all sessions ask for, in seconds.
SESSION_TIMEOUT = 4.0
#: How long the measurement waits for what may never happen, in seconds.
PATIENCE = 30.0


def eventually(condition: Callable[[], T], timeout: float = PATIENCE) -> T:
    """Call `condition` until it returns something true, or the time is over; return the last."""
    deadline = time.monotonic() + timeout
    while not (result := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return result


@dataclass(frozen=True)
class Call:
    """A call of a contender that has come back. Times are `time.monotonic` of all processes."""

    what: str
    began: float
    ended: float
    outcome: str

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Contender:
    """A process that takes the lock as it is told (`contenders/python.py` has the protocol)."""

    def __init__(self, command: Sequence[str], link: TcpProxy) -> None:
        self.link = link
        #: What the library has told a listener: (when, what).
        self.told: list[tuple[float, str]] = []
        #: Since when the lock object says that it is held, and until when it has last said so.
        self.beliefs: list[tuple[float, float | None]] = []
        #: What a forked child has answered.
        self.child: dict[str, Call] = {}
        self._ready: Future[None] = Future()
        self._calls: deque[Future[Call]] = deque()
        self._sessions: deque[Future[tuple[int, bytes]]] = deque()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,  # Ctrl-C is for the command, which then ends all of them
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        """End the process, whatever state it is in."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def await_ready(self) -> None:
        self._ready.result(PATIENCE)

    def order(self, call: str) -> Future[Call]:
        """Order a call, and do not wait for its end."""
        future: Future[Call] = Future()
        self._calls.append(future)
        self.tell(call)
        return future

    def do(self, call: str) -> Call:
        """Order a call and wait for its end."""
        return self.order(call).result(PATIENCE)

    def tell(self, order: str) -> None:
        """Give an order that nothing answers."""
        if self._process.stdin is None:
            raise RuntimeError("The process was started with a pipe.")
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def session(self) -> tuple[int, bytes]:
        """Return the id and the password of the session, which is all that a thief needs."""
        future: Future[tuple[int, bytes]] = Future()
        self._sessions.append(future)
        self.tell("session")
        return future.result(PATIENCE)

    def send(self, number: signal.Signals) -> float:
        """Send a signal, and return when: a moment before it can have had its effect."""
        at = time.monotonic()
        self._process.send_signal(number)
        return at

    def kill_child(self) -> None:
        """SIGKILL a forked child that hangs."""
        os.kill(int(self.child["pid"].outcome), signal.SIGKILL)

    def believed(self, since: float, until: float) -> float:
        """Return for how many seconds between two times the lock object said that it is held."""
        return sum(
            max(0.0, min(last or until, until) - max(first, since)) for first, last in self.beliefs
        )

    @property
    def believes(self) -> bool:
        """Whether the lock object says now that it is held."""
        return bool(self.beliefs) and self.beliefs[-1][1] is None

    def _read(self) -> None:
        if self._process.stdout is None:
            raise RuntimeError("The process was started with a pipe.")
        for line in self._process.stdout:
            name, *words = line.split()
            if name == "ready":
                self._ready.set_result(None)
            elif name == "call":
                self._calls.popleft().set_result(_call(words))
            elif name == "child":
                self.child[words[0]] = _call(words)
            elif name == "told":
                self.told.append((_seconds(words[0]), words[1]))
            elif name == "session":
                self._sessions.popleft().set_result((int(words[0], 16), bytes.fromhex(words[1])))
            elif words[1] == "yes":
                self.beliefs.append((_seconds(words[0]), None))
            else:
                self.beliefs[-1] = (self.beliefs[-1][0], _seconds(words[0]))
        if not self._ready.done():
            self._ready.set_exception(RuntimeError("A contender ended at its start."))


def _seconds(nanoseconds: str) -> float:
    return int(nanoseconds) / 1e9


def _call(words: Sequence[str]) -> Call:
    what, began, ended, outcome = words
    return Call(what, _seconds(began), _seconds(ended), outcome)


class Arena:
    """One library's server. The contenders of every fault are new ones, on a path of their own."""

    def __init__(self, library: str, command: Sequence[str]) -> None:
        self.library = library
        self._command = command
        self._faults = 0
        self._parts = ExitStack()

    def __enter__(self) -> Self:
        self.server = self._parts.enter_context(ZooKeeper()).servers[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    @contextmanager
    def scene(self) -> Iterator[Scene]:
        """Start a holder and a rival, which have done nothing yet; both are gone in the end."""
        self._faults += 1
        self.server.start()  # the fault before may have been cut short
        path = f"/fault-{self._faults}/lock"
        with ExitStack() as parts:
            contenders = []
            for _ in range(2):
                link = parts.enter_context(TcpProxy("127.0.0.1", self.server.port))
                where = [link.address, path, str(SESSION_TIMEOUT)]
                contenders.append(Contender([*self._command, *where], link))
                parts.callback(contenders[-1].close)
            for contender in contenders:
                contender.await_ready()
            yield Scene(self, path, *contenders)


@dataclass
class Scene:
    """A lock, its holder, and the rival who waits for it."""

    arena: Arena
    path: str
    holder: Contender
    rival: Contender

    def connect(self) -> None:
        """Let both open their sessions."""
        for call in [self.holder.order("connect"), self.rival.order("connect")]:
            call.result(PATIENCE)

    def hold(self) -> None:
        """Give the lock to the holder."""
        self.connect()
        call = self.holder.do("acquire 5")
        if call.outcome != "got" or not eventually(lambda: self.holder.believes):
            raise RuntimeError(f"{self.arena.library} cannot take a free lock: {call.outcome}.")

    def hold_and_wait(self) -> Future[Call]:
        """Give the lock to the holder and let the rival wait; return the rival's call."""
        self.hold()
        waiting = self.rival.order("acquire 60")
        session, _ = self.rival.session()
        # From the watch on, it does wait; before, it may still be about to look.
        eventually(lambda: hex(session) in self.arena.server.command("wchc"))
        return waiting

    @contextmanager
    def client(self, thief_of: tuple[int, bytes] | None = None) -> Iterator[KazooClient]:
        """Yield a client without a proxy; in the name of another session if so wanted."""
        client = KazooClient(self.arena.server.address, client_id=thief_of)
        client.start(timeout=PATIENCE)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def line(self) -> list[str]:
        """Return the names of the lock nodes, the holder's first."""
        with self.client() as client:
            return line(client, self.path)

    def nodes_left(self) -> int:
        """Count the lock nodes that are still there some seconds after all is over."""
        with self.client() as client:
            # Less than the session timeout: a node that goes only with its session is left.
            eventually(lambda: not line(client, self.path), SESSION_TIMEOUT - 1)
            return len(line(client, self.path))


def line(client: KazooClient, path: str) -> list[str]:
    """Return the names of the lock nodes under a path, first come first."""
    try:
        return sorted(client.get_children(path), key=lambda name: name[-10:])
    except NoNodeError:
        return []


def outcome(call: Future[Call], timeout: float = PATIENCE) -> Call | None:
    """Return a call when it comes back in time."""
    try:
        return call.result(timeout)
    except FutureTimeoutError:
        return None
