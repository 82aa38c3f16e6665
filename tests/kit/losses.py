"""Tools of the lease tests."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from distlock import Hold
    from distlock.session.session import Session
    from tests.kit.tools import Tree

#: Until when the next holder may not be in after the loss was told, in seconds.
AHEAD_OF_RIVAL = 0.5


class SetOptions(Protocol):
    """Changes options of an alias."""

    def __call__(self, using: str = "default", **options: Any) -> None: ...


class Loss(NamedTuple):
    """One `lock_lost`."""

    at: float
    thread: str
    key: str
    hold: Hold


def loss_of(facts: Mapping[str, Any]) -> Loss:
    """What a receiver of `lock_lost` was given, now and here."""
    return Loss(time.monotonic(), threading.current_thread().name, facts["key"], facts["hold"])


def noted(granted: Future[Any]) -> Callable[[], float]:
    """Note when a waiter is granted, and return a function that waits for that and tells it."""
    at: list[float] = []
    granted.add_done_callback(lambda _: at.append(time.monotonic()))

    def when() -> float:
        assert granted.result(PATIENCE)
        return eventually(lambda: at)[0]

    return when


def await_own_watch(tree: Tree, hold: Hold) -> None:
    """Wait until the holder watches its own node, which it does from the first heartbeat on."""
    mine = f"{session_for().id:#x}"
    eventually(lambda: mine in watchers(tree, hold.path), PATIENCE, "a watch on the own node")


def watchers(tree: Tree, path: str) -> list[str]:
    """The ids of the sessions that watch a node."""
    watched: dict[str, list[str]] = {}
    latest = ""
    for line in tree.client.command(b"wchp").split():
        if line.startswith("/"):
            latest = line
        else:
            watched.setdefault(latest, []).append(line)
    return watched.get(path, [])


def pass_time(seconds: float) -> None:
    """Let time go by, where just that is the subject."""
    started = time.monotonic()
    eventually(lambda: time.monotonic() - started >= seconds, seconds + 1)


def beneficiaries(session: Session) -> int:
    """For how many places the session keeps its lease."""
    return len(session.heartbeat._beneficiaries)


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return line.strip()


def tell(process: subprocess.Popen[str], order: str = "") -> None:
    """Give a process a line to read."""
    assert process.stdin is not None
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
