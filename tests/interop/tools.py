"""Tools of the interop tests: contenders in Java and in Python that do as they are told."""

from __future__ import annotations

import itertools
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol
from uuid import uuid4

from distlock import (
    zk_leader,
    zk_lock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock_chaos.guard import GuardedProcess
from tests.kit.tools import PATIENCE, MakeOwner, Owner

SOURCE = Path(__file__).with_name("Peer.java")
KEY = "key"

Language = Literal["Java", "Python"]
#: Who holds and who waits.
BOTH_WAYS = [("Java", "Python"), ("Python", "Java")]

#: Long enough to outlive a pause of a busy machine, in seconds.
JAVA_SESSION_TIMEOUT = 20.0
#: How long Java may take to start and to connect, in seconds.
START_PATIENCE = 60.0


class JavaError(Exception):
    """An order ended with an exception in Java, or its process ended."""


class JavaPeer:
    """A process that uses Curator's recipes as it is told. `Peer.java` says how they talk."""

    def __init__(
        self,
        command: Sequence[str],
        hosts: str,
        *,
        folder: Path,
        session_timeout: float = JAVA_SESSION_TIMEOUT,
    ) -> None:
        self._errors = folder / "peer.log"
        self._process = GuardedProcess(
            [*command, hosts, str(session_timeout)],
            output=self._errors,
            cwd=folder,
            piped=True,
        )
        ready: Future[str] = Future()
        self._answers = {"0": ready}
        self._numbers = itertools.count(1)
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            ready.result(START_PATIENCE)
        except BaseException:
            self.kill()
            raise

    def order(self, thread: str, verb: str, *arguments: object) -> Future[str]:
        """Give an order to one of its threads, and do not wait for the outcome."""
        number = str(next(self._numbers))
        answer = self._answers[number] = Future()
        with self._writing:
            self._process.stdin.write(" ".join(map(str, [number, thread, verb, *arguments])) + "\n")
            self._process.stdin.flush()
        return answer

    def do(self, thread: str, verb: str, *arguments: object) -> str:
        """Give an order, and return the outcome."""
        return self.order(thread, verb, *arguments).result(PATIENCE)

    def kill(self) -> None:
        """SIGKILL: the server hears nothing of it."""
        self._process.send(signal.SIGKILL)
        self._close()

    def end(self) -> None:
        """Let it end in order."""
        with suppress(BrokenPipeError, ValueError):  # it has ended, or was killed
            self._process.stdin.write("end\n")
            self._process.stdin.flush()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.send(signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self) -> None:
        for line in self._process.stdout:
            number, _, outcome = line.strip().partition(" ")
            answer = self._answers.pop(number)
            if outcome.startswith("!"):
                answer.set_exception(JavaError(outcome[1:]))
            else:
                answer.set_result(outcome)
        for answer in list(self._answers.values()):
            answer.set_exception(JavaError(f"The process has ended. {self._errors.read_text()}"))


# --- contenders ----------------------------------------------------------------------------------


class Contender(ABC):
    """One thread in one of the languages, which contends for the locks of `KEY`.

    A recipe is called as in `Peer.java`: ``mutex``, ``read``, ``write``, ``semaphore=3`` and so on.
    """

    @abstractmethod
    def ask(self, recipe: str = "mutex", *, timeout: float = PATIENCE) -> Future[bool]:
        """Begin to acquire; the future has the outcome."""

    def acquire(self, recipe: str = "mutex", *, timeout: float = PATIENCE) -> bool:
        return self.ask(recipe, timeout=timeout).result(timeout + PATIENCE)

    @abstractmethod
    def release(self, recipe: str = "mutex") -> None: ...

    @abstractmethod
    def participants(self, recipe: str = "mutex") -> list[str]:
        """The names of the nodes that this language sees."""


class InJava(Contender):
    def __init__(self, peer: JavaPeer, path: str) -> None:
        self._peer = peer
        self.path = path
        self._thread = str(uuid4())

    def ask(self, recipe: str = "mutex", *, timeout: float = PATIENCE) -> Future[bool]:
        granted: Future[bool] = Future()

        def answered(answer: Future[str]) -> None:
            if (error := answer.exception()) is not None:
                granted.set_exception(error)
            else:
                granted.set_result(answer.result() == "got")

        order = self._peer.order(self._thread, "acquire", recipe, self.path, timeout)
        order.add_done_callback(answered)
        return granted

    def release(self, recipe: str = "mutex") -> None:
        self._peer.do(self._thread, "release", recipe, self.path)

    def interrupt(self) -> None:
        """``Thread.interrupt``, and the end of this thread."""
        self._peer.do(f"{self._thread}-interrupts", "interrupt", self._thread)

    def make_revocable(self, recipe: str = "mutex") -> None:
        """Let the next hold be told when somebody asks for it: see `await_revocation`."""
        self._peer.do(self._thread, "revocable", recipe, self.path)

    def await_revocation(self) -> None:
        """Wait until somebody has asked."""
        looks = f"{self._thread}-looks"
        told = self._peer.order(looks, "await-revocation", self.path, PATIENCE)
        assert told.result(2 * PATIENCE) == "told"

    def participants(self, recipe: str = "mutex") -> list[str]:
        # Of a mutex Curator tells the paths, of a semaphore the names.
        seen = self._peer.do(f"{self._thread}-looks", "participants", recipe, self.path)
        return [node.rpartition("/")[2] for node in seen.split()]


class InPython(Contender):
    def __init__(self, owner: Owner, using: str) -> None:
        self._owner = owner
        self._using = using
        self._locks: dict[str, Any] = {}

    def ask(self, recipe: str = "mutex", *, timeout: float = PATIENCE) -> Future[bool]:
        return self._owner.submit(self._lock(recipe).acquire, timeout=timeout)

    def release(self, recipe: str = "mutex") -> None:
        self._owner.now(self._lock(recipe).release)

    def participants(self, recipe: str = "mutex") -> list[str]:
        seen = self._lock(recipe).participants()
        return [participant.path.rpartition("/")[2] for participant in seen]

    def _lock(self, recipe: str) -> Any:
        return self._locks.setdefault(recipe, python_lock(recipe, self._using))


def python_lock(recipe: str, using: str = "default") -> Any:
    """Our lock of `KEY` for a recipe."""
    name, _, limit = recipe.partition("=")
    return {
        "semaphore": lambda: zk_semaphore(KEY, int(limit), using=using),
        "mutex": lambda: zk_lock(KEY, using=using),
        "read": lambda: zk_rwlock(KEY, using=using).read,
        "write": lambda: zk_rwlock(KEY, using=using).write,
        "semaphore-mutex": lambda: zk_semaphore_mutex(KEY, using=using),
        "unfair": lambda: zk_lock(KEY, using=using, fair=False),
        "leader": lambda: zk_leader(KEY, using=using),
        "none": NoLock,
    }[name]()


class NewContender(Protocol):
    """Makes a contender; those of Python have one of two sessions in turn, or the one named."""

    def __call__(self, language: Language, using: str = "") -> Contender: ...


def contenders(java: JavaPeer, path: str, make_owner: MakeOwner) -> NewContender:
    aliases = itertools.cycle(["default", "other"])

    def make(language: Language, using: str = "") -> Contender:
        if language == "Java":
            return InJava(java, path)
        return InPython(make_owner(), using or next(aliases))

    return make


# --- contention ----------------------------------------------------------------------------------


class NoLock:
    """Lets everybody in: shows that the witness finds what a broken lock would do."""

    def acquire(self, timeout: float) -> bool:
        return True

    def release(self) -> None: ...


#: So long that one lease too many finds the others still there; as in `Peer.java`.
STAY_SECONDS = 0.005


class Count(NamedTuple):
    """How often somebody was inside, and how often together with one who may not be there."""

    holds: int
    overlaps: int


class Witness:
    """A folder in which everybody who is inside has a file.

    Each looks after its own file is there, so of two who are inside together one meets the other,
    without any lock. `Peer.isCrowded` does the same in Java.
    """

    def __init__(self, folder: Path, recipe: str) -> None:
        self.folder = folder
        self._name, _, limit = recipe.partition("=")
        self._limit = int(limit or 1)

    @contextmanager
    def inside(self) -> Iterator[None]:
        file = self.folder / f"{self._name}-{uuid4()}"
        file.touch(exist_ok=False)
        try:
            yield
        finally:
            file.unlink()

    def is_crowded(self) -> bool:
        """Enter, look, stay a while, look again, and leave."""
        with self.inside():
            at_first = self._look()
            time.sleep(STAY_SECONDS)
            return self._look() or at_first

    def _look(self) -> bool:
        files = [file.name for file in self.folder.iterdir()]
        if self._name == "read":
            return any(not file.startswith("read-") for file in files)
        return len(files) > self._limit


def contend(recipe: str, witness: Witness, seconds: float, using: str) -> Count:
    """Acquire and release for some seconds, as `Peer.contend` does."""
    lock = python_lock(recipe, using)
    count = Count(0, 0)
    end = time.monotonic() + seconds
    while count.holds == 0 or time.monotonic() < end:
        assert lock.acquire(timeout=60)
        try:
            count = Count(count.holds + 1, count.overlaps + witness.is_crowded())
        finally:
            lock.release()
    return count
