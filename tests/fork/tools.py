"""Programs that fork, run as processes of their own, and what they say."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit.helpers import spawn_python
from tests.kit.stopwatch import Stopwatch

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

#: By how much a call may overrun its time (promise 7), and what else a child does, in seconds.
SLACK = 0.5
#: After so many seconds a child that hangs says where, and ends.
STUCK = 120


def in_a_child(act: Callable[[], dict[str, Any]]) -> Any:
    """Fork, let the child act, and return what it found, with its exit status."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(STUCK, exit=True)
        os.write(writing, json.dumps(act()).encode())
        os.close(writing)
        sys.exit(0)  # with all that atexit has to do
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {**json.loads(found or "{}"), "status": status}


def others_sleep() -> bool:
    """Whether no other thread of this process runs, nor has for 50 ms; none starts or ends then.

    A child of a fork that Python is not told of would wait for ever for what such a thread holds.
    """

    def looked() -> dict[str, tuple[str, list[str]]]:
        found = {}
        for folder in Path("/proc/self/task").iterdir():
            if int(folder.name) != threading.get_native_id():
                lines = (folder / "status").read_text().splitlines()
                state = next(line for line in lines if line.startswith("State:"))
                found[folder.name] = state, [line for line in lines if "ctxt_switches" in line]
        return found

    before = looked()
    time.sleep(0.05)
    return before == looked() and all("S (sleeping)" in state for state, _ in before.values())


@contextmanager
def timed(found: dict[str, Any], name: str) -> Iterator[None]:
    """Note under a name how long a block took, and which exception ended it."""
    outcome = "done"
    with Stopwatch() as watch:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - to be looked at by the test
            outcome = type(error).__name__
    found[name] = outcome
    found[f"{name} took"] = watch.taken


def tell(found: Any) -> None:
    """Say to the test what was found."""
    print(json.dumps(found), flush=True)  # noqa: T201 - read by the test


def hear() -> str:
    """Wait for the test's next order."""
    return sys.stdin.readline().strip()


@contextmanager
def program(
    code: str,
    *arguments: str,
    as_shipped: bool = False,
    session_timeout: float = 4,
    head: str = "",
) -> Iterator[subprocess.Popen[str]]:
    """Run a program with the tools at hand.

    :param head: what runs before distlock is imported
    """
    options = (
        f"TIMEOUT=5, CONNECT_TIMEOUT=5, SESSION_TIMEOUT={session_timeout}, as_shipped={as_shipped}"
    )
    preamble = (
        "import os, signal, sys, threading, time\n"
        "from tests.fork.tools import hear, in_a_child, tell, timed\n"
        "from tests.kit.tools import await_connection, set_up\n"
        "if __name__ == '__main__':\n"
        f"    set_up(sys.argv[1], sys.argv[2], {options})\n"
        "from distlock import LockBusy, LockLost, LockUnavailable, NotOwner, zk_lock\n"
        "from distlock.session.registry import session_for\n"
    )
    with spawn_python(head + preamble + code, *arguments) as process:
        yield process


def heard(process: subprocess.Popen[str]) -> Any:
    """What a program says next."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.kill()
        raise AssertionError(process.communicate()[1])
    return json.loads(line)
