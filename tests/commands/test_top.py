"""`manage.py distlock top` and `list --watch`: once, on a terminal, and into a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from distlock import zk_lock
from distlock_chaos.server import ZooKeeper
from tests.commands.tools import run
from tests.inspection.tools import cleared, stand
from tests.kit.helpers import ROOT
from tests.kit.losses import pass_time
from tests.kit.tools import PATIENCE, Tree

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

CODE = """
import sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2])
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "distlock", *sys.argv[3:]])
"""
SCREEN, RESTORED = b"\x1b[?1049h", b"\x1b[?7h\x1b[?25h\x1b[?1049l"


def command(zookeeper: ZooKeeper, tree: Tree, *arguments: str) -> list[str]:
    return [sys.executable, "-c", CODE, zookeeper.hosts, tree.namespace, *arguments]


class Terminal:
    """A command at a terminal of 100 columns and 8 lines."""

    def __init__(self, command: list[str]) -> None:
        self.fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 8, 100, 0, 0))
        here = {name: value for name, value in os.environ.items() if name != "LINES"}
        streams: Any = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process = subprocess.Popen(
            command, **streams, cwd=ROOT, start_new_session=True, env=here
        )
        os.close(theirs)
        self.shown = b""

    def read_until(self, pattern: bytes) -> bytes:
        """Return what is shown up to a pattern, and forget it."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.shown, re.DOTALL)):
            assert select.select([self.fd], [], [], max(end - time.monotonic(), 0))[0], self.shown
            self.shown += os.read(self.fd, 65536)
        read, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return read


@contextmanager
def at_a_terminal(command: list[str]) -> Iterator[Terminal]:
    terminal = Terminal(command)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.fd)


def test_it_shows_the_longest_wait_first_and_deadlocks_above(tree: Tree) -> None:
    with cleared(tree):
        for key, owners in {"z": "uv", "a": "wx", "1": "ab", "2": "ba"}.items():
            for owner in owners:
                stand(tree, key, data=owner)
            pass_time(0.002)  # their waits are by the server's milliseconds
        status, out, errors = run("top", "--once")
    assert (status, errors) == (0, "")
    summary, deadlock, first, second, _, *lines = out.splitlines()
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  4 locks, 4 waiting, the longest for [\d.]+s\. Deadlocks: 1\.", summary
    )
    assert deadlock == "Deadlock:"
    assert {first, second} == {"  a holds 1 and waits for 2", "  b holds 2 and waits for 1"}
    assert [line.split()[0] for line in lines] == ["z", "a", "1", "2"]


@pytest.mark.parametrize(
    ("arguments", "ends"),
    [(["top"], signal.SIGINT), (["list", "--watch"], signal.SIGTERM)],
    ids=["top", "list"],
)
def test_on_a_terminal_it_looks_again_and_restores_it(
    zookeeper: ZooKeeper, tree: Tree, arguments: list[str], ends: signal.Signals
) -> None:
    with cleared(tree), at_a_terminal(command(zookeeper, tree, *arguments)) as terminal:
        stand(tree, "first")
        assert SCREEN in terminal.read_until(rb"first .*\x1b\[J")
        with zk_lock("second"):
            shown = terminal.read_until(rb"second .*\x1b\[J")
        assert SCREEN not in shown
        for _ in range(9):
            stand(tree, "more")
            stand(tree, f"more{_}")
        terminal.read_until(rb"more .*\x1b\[J")
        shown = terminal.read_until(rb"\x1b\[H.*\x1b\[J")
        assert shown.count(b"\n") == 7  # of 8 lines, so that it does not scroll
        terminal.process.send_signal(ends)
        rest = terminal.read_until(re.escape(RESTORED))
        assert b"Traceback" not in rest
        assert terminal.process.wait(PATIENCE) == 0


def test_the_server_may_be_away_meanwhile(zookeeper: ZooKeeper, tree: Tree) -> None:
    wrong = command(zookeeper, tree, "top", "--budget", "0")
    with at_a_terminal(wrong) as terminal:
        for _ in range(2):
            terminal.read_until(rb"\x1b\[H[^\n]*did not answer[^\n]*\n[^\n]*\x1b\[J")


@pytest.mark.parametrize("colour", ["", "--no-color"])
def test_a_lock_that_is_waited_for_has_a_colour(
    zookeeper: ZooKeeper, tree: Tree, colour: str
) -> None:
    with cleared(tree):
        stand(tree, "key")
        stand(tree, "key")
        started = command(zookeeper, tree, "list", *filter(None, [colour]))
        with at_a_terminal(started) as terminal:
            shown = terminal.read_until(rb"key [^\n]*\n")
        assert (b"\x1b[33;1mkey" in shown) is not bool(colour)
        assert (b"\x1b" in shown) is not bool(colour)
        assert "\x1b" not in run("list")[1]


def test_a_pipe_may_close(zookeeper: ZooKeeper, tree: Tree) -> None:
    with cleared(tree):
        stand(tree, "key")
        piped = subprocess.Popen(
            command(zookeeper, tree, "list"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        assert piped.stdout
        piped.stdout.close()
        assert piped.stderr
        assert piped.stderr.read() == b""
        piped.stderr.close()
        assert piped.wait(PATIENCE) == 141
