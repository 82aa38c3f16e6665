"""A process that takes a lock as it is told: distlock's mutex or kazoo's `Lock`.

Run as ``python -m benchmarks.contenders.python LIBRARY HOSTS PATH SESSION_TIMEOUT``. Orders come
line by line on stdin; its end is the order to end. `Contender.java` speaks the same protocol.

    connect | acquire SECONDS | release | fork     one after the other, each answered by `call`
    session | traffic | interrupt                  at once, also while another order is under way

Answers are lines on stdout. Times are nanoseconds of CLOCK_MONOTONIC, one clock for all processes.

    call ORDER BEGAN ENDED OUTCOME      the outcome is "got" or "busy" of an acquire, what
                                        another call returned, "ok", or an exception's name
    child WHAT BEGAN ENDED OUTCOME      the same of a forked child
    believes AT yes|no                  since when the lock object says so; for "no" when it last
                                        said "yes". It is asked every 5 ms.
    told AT WHAT                        what the library has called a listener with
    session ID PASSWORD                 both in hexadecimal digits
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Protocol

import django
from django.conf import settings
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout, NoNodeError

from distlock import Hold, LockBusy, signals, zk_lock
from distlock.engine.reply import ignore
from distlock.session.registry import session_for

if TYPE_CHECKING:
    from types import FrameType

    from kazoo.protocol.states import KazooState
    from kazoo.recipe.lock import Lock

ASK_INTERVAL = 0.005
TRAFFIC_INTERVAL = 0.05
CONNECT_TIMEOUT = 3.0


def say(*words: object) -> None:
    """Write one answer: in one system call and without a lock, for the sake of forked children."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Interrupted(BaseException):
    """What the signal handler raises, as a soft time limit does."""


class Library(Protocol):
    """A lock under comparison, used as its documentation says."""

    def connect(self) -> None: ...

    def acquire(self, timeout: float) -> bool: ...

    def release(self) -> object:
        """Release, and return what the library returns."""

    def believes(self) -> bool:
        """What the lock object says, without asking the server."""

    def send_something(self) -> None:
        """Send a request and do not wait for the answer."""

    def session(self) -> tuple[int, bytes]: ...


class Distlock:
    """`zk_lock` in a `with` block."""

    def __init__(self, hosts: str, path: str, session_timeout: float) -> None:
        namespace, self._key = path.rsplit("/", 1)
        options = {"HOSTS": hosts, "NAMESPACE": namespace, "SESSION_TIMEOUT": session_timeout}
        settings.configure(
            INSTALLED_APPS=["distlock"],
            DATABASES={},
            USE_TZ=True,
            DISTLOCK={"default": {**options, "CONNECT_TIMEOUT": CONNECT_TIMEOUT}},
            LOGGING_CONFIG=None,
        )
        django.setup()
        self._block = ExitStack()
        self._hold: Hold | None = None
        signals.lock_lost.connect(self._lost)

    def connect(self) -> None:
        zk_lock(self._key).participants()

    def acquire(self, timeout: float) -> bool:
        try:
            self._hold = self._block.enter_context(zk_lock(self._key, timeout=timeout))
        except LockBusy:
            return False
        return True

    def release(self) -> None:
        self._hold = None
        self._block.close()

    def believes(self) -> bool:
        hold = self._hold
        return hold is not None and not hold.lost

    def send_something(self) -> None:
        session = session_for()
        session.children(session.root, ignore)

    def session(self) -> tuple[int, bytes]:
        number, password = session_for()._client.credentials  # noqa: SLF001 - for the thief only
        return number, password

    def _lost(self, **_: Any) -> None:
        say("told", time.monotonic_ns(), "lock_lost")


class Kazoo:
    """kazoo's `Lock`, with a client that reconnects as it does by default."""

    def __init__(self, hosts: str, path: str, session_timeout: float) -> None:
        self._path = path
        self._client = KazooClient(hosts, timeout=session_timeout)
        self._client.add_listener(self._state)
        self._started = False
        self._lock: Lock | None = None

    def connect(self) -> None:
        self._client.start(timeout=CONNECT_TIMEOUT)
        self._started = True

    def acquire(self, timeout: float) -> bool:
        if not self._started:
            self.connect()
        self._lock = self._client.Lock(self._path)
        try:
            return bool(self._lock.acquire(timeout=timeout))
        except LockTimeout:
            return False

    def release(self) -> object:
        return self._lock and self._lock.release()

    def believes(self) -> bool:
        lock = self._lock
        return lock is not None and lock.is_acquired

    def send_something(self) -> None:
        with suppress(NoNodeError):
            self._client.get_children_async("/")

    def session(self) -> tuple[int, bytes]:
        number, password = self._client.client_id
        return number, password

    def _state(self, state: KazooState) -> None:
        say("told", time.monotonic_ns(), state)


class Contender:
    """Obeys orders: calls in the main thread, where signals are raised, the rest beside it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._calls: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._traffic = threading.Event()

    def run(self) -> None:
        signal.signal(signal.SIGUSR1, self._raise)
        for work in (self._listen, self._ask, self._send_traffic):
            threading.Thread(target=work, daemon=True).start()
        say("ready")
        while True:
            order, *arguments = self._calls.get().split()
            self._call("call", order, *arguments)

    def _call(self, kind: str, order: str, *arguments: str) -> None:
        began = time.monotonic_ns()
        try:
            outcome = self._obey(order, *arguments)
        except (Exception, Interrupted) as error:  # noqa: BLE001 - its name is the outcome
            outcome = type(error).__name__
        say(kind, order, began, time.monotonic_ns(), outcome)

    def _obey(self, order: str, *arguments: str) -> str:
        if order == "connect":
            self._library.connect()
        elif order == "acquire":
            return "got" if self._library.acquire(float(arguments[0])) else "busy"
        elif order == "release":
            return str(self._library.release() or "ok")
        elif order == "believes":
            return "held" if self._library.believes() else "lost"
        elif order == "fork":
            self._fork()
        return "ok"

    def _fork(self) -> None:
        if child := os.fork():
            os.waitpid(child, 0)
            return
        try:
            now = time.monotonic_ns()
            say("child", "pid", now, now, os.getpid())
            self._call("child", "believes")
            self._call("child", "acquire", "3")
        finally:
            os._exit(0)

    def _listen(self) -> None:
        for line in sys.stdin:
            match line.strip():
                case "session":
                    number, password = self._library.session()
                    say("session", hex(number & (2**64 - 1)), password.hex())
                case "traffic":
                    self._traffic.set()
                case "interrupt":
                    os.kill(os.getpid(), signal.SIGUSR1)
                case order:
                    self._calls.put(order)
        os._exit(0)

    def _ask(self) -> None:
        believed, last = False, 0
        while True:
            believes = self._library.believes()
            at = time.monotonic_ns()
            if believes != believed:
                say("believes", at if believes else last, "yes" if believes else "no")
            believed, last = believes, at if believes else last
            time.sleep(ASK_INTERVAL)

    def _send_traffic(self) -> None:
        self._traffic.wait()
        while True:
            self._library.send_something()
            time.sleep(TRAFFIC_INTERVAL)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        raise Interrupted


if __name__ == "__main__":
    # They would report what the figures tell: the faults.
    logging.disable()
    _library, *_where, _session_timeout = sys.argv[1:]
    _make: dict[str, Callable[..., Library]] = {"distlock": Distlock, "kazoo": Kazoo}
    Contender(_make[_library](*_where, float(_session_timeout))).run()
