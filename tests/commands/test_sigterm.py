"""SIGTERM frees the locks of a process at once: of a management command, and of a script that asks.

Each process takes a lock, says so, and waits for the signal.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time

import pytest

from distlock import release_on_sigterm
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, spawn_python
from tests.kit.tools import Tree

pytestmark = pytest.mark.engines("zookeeper", "redis")


SESSION_TIMEOUT = 15
#: Until when the lock must be free; the session would last for three times as long.
SOON = 5.0

SETTINGS = f"""
import os, signal, sys, threading, time
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.conf import settings
hosts, namespace = sys.argv[1:3]
settings.DISTLOCK = {{"default": {{
    "HOSTS": hosts, "NAMESPACE": namespace, "SESSION_TIMEOUT": {SESSION_TIMEOUT}}}}}
import distlock
def hold():
    distlock.zk_lock("key").acquire()
    print("held", flush=True)
def hold_and_wait():
    hold()
    for _ in range(600):
        time.sleep(0.1)  # a signal just before a sleep does not interrupt it
"""
COMMAND = """
from django.core.management import execute_from_command_line
code = "import __main__; __main__.body()"
execute_from_command_line(["manage.py", "shell", "-v", "0", "-c", code])
"""
SCRIPT = """
import django
django.setup()
body()
"""

ENDS: dict[str, tuple[str, str, int]] = {
    "a command": ("body = hold_and_wait", COMMAND, -signal.SIGTERM),
    "a command that locks in another thread": (
        """
def body():
    threading.Thread(target=hold).start()
    for _ in range(600):
        time.sleep(0.1)  # a signal just before a sleep does not interrupt it
""",
        COMMAND,
        -signal.SIGTERM,
    ),
    "a command of a program that has started Django": (
        "import django; django.setup(); body = hold_and_wait",
        COMMAND,
        -signal.SIGTERM,
    ),
    "a script": (
        """
def body():
    distlock.release_on_sigterm()
    hold_and_wait()
""",
        SCRIPT,
        -signal.SIGTERM,
    ),
    "a script with a handler": (
        """
def body():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    distlock.release_on_sigterm()
    distlock.release_on_sigterm()
    hold_and_wait()
""",
        SCRIPT,
        7,
    ),
    "a command with a handler": (
        """
def body():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    hold_and_wait()
""",
        COMMAND,
        7,
    ),
    "a command that is interrupted while it begins a session": (
        """
def body():
    hold()
    from distlock.session import registry
    with registry._lock:
        for _ in range(600):
            time.sleep(0.1)  # a signal just before a sleep does not interrupt it
""",
        COMMAND,
        -signal.SIGTERM,
    ),
}
#: Here the session must run out; the test does not wait for that.
LEAVES_IT = {"a command that is interrupted while it begins a session"}


@pytest.fixture
def arguments(zookeeper: ZooKeeper, namespace: str) -> tuple[str, str]:
    return zookeeper.hosts, namespace


def await_hold(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n", process.communicate(timeout=20)


@pytest.mark.parametrize("name", ENDS)
def test_sigterm_frees_the_locks_at_once(name: str, arguments: tuple[str, str], tree: Tree) -> None:
    body, start, status = ENDS[name]
    with spawn_python(SETTINGS + body + start, *arguments) as process:
        await_hold(process)
        tree.await_line("key", 1)
        at = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == status, process.communicate()
        assert time.monotonic() - at < SOON
        if name in LEAVES_IT:
            for node in tree.line("key"):
                tree.client.delete(f"{tree.path('key')}/{node}")
        eventually(lambda: not tree.line("key"), SOON)


def test_an_ignored_sigterm_stays_ignored(arguments: tuple[str, str]) -> None:
    body = """
def body():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    distlock.release_on_sigterm()
    hold()
    sys.stdin.readline()
    print(distlock.zk_lock("key").held, flush=True)
"""
    with spawn_python(SETTINGS + body + SCRIPT, *arguments) as process:
        await_hold(process)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate("go on\n", timeout=20)
        assert (out, process.returncode) == ("True\n", 0), err


def test_a_forked_child_that_is_ended_leaves_its_parent_the_lock(
    arguments: tuple[str, str], tree: Tree
) -> None:
    body = """
def body():
    hold()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"running")  # a signal before that is lost: CPython forgets it at a fork
        for _ in range(600):
            time.sleep(0.1)  # a signal just before a sleep does not interrupt it
        os._exit(1)
    os.read(reading, 7)
    os.kill(child, signal.SIGTERM)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
    sys.stdin.readline()
"""
    with spawn_python(SETTINGS + body + COMMAND, *arguments) as process:
        await_hold(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{int(signal.SIGTERM)}\n"
        assert len(tree.line("key")) == 1
        process.communicate("end\n", timeout=20)


def test_a_handler_cannot_be_set_in_another_thread() -> None:
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            release_on_sigterm()
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])
