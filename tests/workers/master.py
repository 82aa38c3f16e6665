"""A master process and its forked children, which take locks and do what a test tells them."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from tests.fork.tools import hear, heard, tell
from tests.kit.engines import tree_at
from tests.kit.helpers import spawn_python
from tests.kit.losses import tell as order
from tests.kit.tools import PATIENCE, expire, set_up, within

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

#: The session timeout of these processes, in seconds.
SESSION_SECONDS = 20


class Master:
    """A test's view of one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def holds(self, key: str) -> None:
        """Let the master itself take a lock."""
        self._ask("hold", key)

    def child(self, key: str) -> int:
        """Start a child that holds a lock, and return its process id."""
        pid: int = self._ask("child", key)
        return pid

    def tell(self, key: str, what: str) -> Any:
        """Let the child that holds `key` do something."""
        return self._ask("tell", key, what)

    def _ask(self, *words: str) -> Any:
        order(self.process, json.dumps(words))
        return heard(self.process)

    def end(self) -> str:
        """End the master and its children, and wait for all; what they have logged.

        Whoever is still there holds the pipes open, also the session reaper.
        """
        order(self.process, json.dumps(["end"]))
        return self.process.communicate(timeout=2 * PATIENCE)[1]


@contextmanager
def master(hosts: str, namespace: str, *, reaper: bool = True) -> Iterator[Master]:
    """Start a master, which starts the session reaper first."""
    code = "from tests.workers.master import run; run()"
    with spawn_python(code, hosts, namespace, str(reaper)) as process:
        assert heard(process) == "ready"
        yield Master(process)


def assert_reaper_frees_the_lock_of_a_killed_child(hosts: str, namespace: str) -> str:
    """Return what the processes have said."""
    with master(hosts, namespace) as one, tree_at(hosts, namespace) as tree:
        dying, _ = one.child("a"), one.child("b")
        with within(SESSION_SECONDS / 2):
            os.kill(dying, signal.SIGKILL)
            tree.await_line("a", 0)
        assert one.tell("b", "verify") == "done"
        said = one.end()
    assert f"Process {dying} died" in said
    assert said.count("died") == 1
    return said


# --- in the process itself -----------------------------------------------------------------------


def run() -> None:
    """Be the master."""
    hosts, namespace, reaper = sys.argv[1:]
    logging.basicConfig(level=1)  # no secret is in any line
    set_up(hosts, namespace, SESSION_TIMEOUT=SESSION_SECONDS, CONNECT_TIMEOUT=2 * PATIENCE)
    from distlock import zk_lock  # noqa: PLC0415
    from distlock.session import reaper as session_reaper  # noqa: PLC0415 - not before set_up

    if reaper == "True":
        assert session_reaper.start_session_reaper()
        assert session_reaper.start_session_reaper()  # again is no other one
    tell("ready")
    fork = get_context("fork")
    children: dict[str, tuple[Any, Connection]] = {}
    while True:
        match json.loads(hear()):
            case "hold", key:
                tell(zk_lock(key).acquire())
            case "child", key:
                ours, theirs = fork.Pipe()
                process = fork.Process(target=_live, args=(hosts, key, theirs), daemon=True)
                process.start()
                children[key] = process, ours
                tell(ours.recv())
            case "tell", key, what:
                _, ours = children[key]
                ours.send(what)
                tell(ours.recv())
            case ["end"]:
                for process, ours in children.values():
                    if process.is_alive():
                        ours.send("end")
                    process.join()
                sys.exit()


def _live(hosts: str, key: str, pipe: Connection) -> None:
    """Be a child."""
    from distlock import zk_lock  # noqa: PLC0415 - not before set_up
    from distlock.session.registry import session_for  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lock = zk_lock(key)
    hold = lock.__enter__()
    pipe.send(os.getpid())
    while True:
        match pipe.recv():
            case "verify":
                hold.verify()
                pipe.send("done")
            case "tell the password":
                pipe.send(session_for()._client.credentials[1].hex())
            case "lose the session":
                expire(hosts, session_for())
                pipe.send(zk_lock(f"{key} again").acquire())
            case "close all files":
                os.closerange(3, pipe.fileno())
                os.closerange(pipe.fileno() + 1, 1000)
                pipe.send("done")
            case "end":
                return
