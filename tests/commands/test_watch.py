"""`manage.py distlock watch`: live on a terminal, lines elsewhere, and a quiet end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management.base import BaseCommand

from distlock import LockUnavailable
from distlock.inspection.tree import snapshot
from distlock.management.subcommands import watch
from tests.commands.tools import Terminal, run
from tests.inspection.tools import cleared, stand
from tests.kit.helpers import ROOT, spawn_python
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from pytest_django import Settings

    from distlock.inspection.state import Snapshot
    from distlock.testing.server import ZooKeeper
    from distlock_chaos.proxy import TcpProxy
    from tests.kit.tools import Tree


pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

CODE = """
import sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], CONNECT_TIMEOUT=20)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "distlock", "watch", *sys.argv[3:]])
"""


def test_it_tells_who_is_waited_for(tree: Tree) -> None:
    with cleared(tree):
        for key in ("crowded", "crowded", "lonely"):
            stand(tree, key)
        status, out, errors = run("watch", "--count", "2", "--interval", "0.01")
        assert (status, errors) == (0, "")
        assert out.count(f"{tree.namespace}: 2 locks, 1 waiting") == 2
        assert out.count("crowded") == 2
        assert "lonely" not in out
        assert "\x1b" not in out
        assert "lonely" in run("watch", "--count", "1", "--every")[1]
        assert "crowded" not in run("watch", "--count", "1", "lone")[1]


def test_as_json_each_look_is_a_line(tree: Tree) -> None:
    with cleared(tree):
        for _ in range(2):
            stand(tree, "key")
        _, out, _ = run("watch", "--count", "2", "--interval", "0.01", "--json")
        looks = [json.loads(line) for line in out.splitlines()]
        assert [[lock["waiting"] for lock in look["locks"]] for look in looks] == [[1], [1]]


def test_a_server_that_is_away_is_told_and_waited_for(
    broken_link: TcpProxy, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cleared(tree):
        for _ in range(2):
            stand(tree, "key")
        broken_link.cut()

        budgets = iter([0.3, PATIENCE])

        def looked(using: str, **options: Any) -> Snapshot:
            try:
                return snapshot(using, **{**options, "budget": next(budgets)})
            except LockUnavailable:
                broken_link.pass_through()
                raise

        monkeypatch.setattr(watch, "snapshot", looked)
        status, out, _ = run("watch", "--count", "2", "--interval", "0.01")
        assert status == 0
        before, _, after = out.partition("did not answer in time")
        assert "key" not in before
        assert "1 waiting" in after


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_ctrl_c_ends_it_without_a_word(
    tree: Tree, zookeeper: ZooKeeper, number: signal.Signals
) -> None:
    with spawn_python(CODE, zookeeper.hosts, tree.namespace, "--interval", "0.01") as process:
        assert process.stdout is not None
        assert tree.namespace in process.stdout.readline()
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, "")


def test_a_terminal_is_drawn_anew(tree: Tree, zookeeper: ZooKeeper) -> None:
    ours, theirs = pty.openpty()
    with cleared(tree):
        for _ in range(2):
            stand(tree, "key")
        arguments = [zookeeper.hosts, tree.namespace, "--interval", "0.01", "--count", "3"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "LINES": "20"}
        ended = subprocess.run(
            [sys.executable, "-c", CODE, *arguments],
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=3 * PATIENCE,
            check=False,
        )
        os.close(theirs)
        assert (ended.returncode, ended.stderr) == (0, b"")
        drawn = os.read(ours, 65536).decode()
        os.close(ours)
        assert drawn.count("\x1b[H") == drawn.count("\x1b[J") == 3
        assert drawn.count("1 waiting") == 3


def test_what_does_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    command = BaseCommand(stdout=screen, stderr=StringIO())
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "5")
    watch._show(command, [f"{number}: a long line" for number in range(9)])
    lines = screen.getvalue().removeprefix("\x1b[H").removesuffix("\x1b[J").split("\x1b[K\n")
    assert lines == ["0: a long ", "1: a long ", "2: a long ", "… and 6 mo", ""]


def test_wrong_settings_end_it_with_status_78(settings: Settings) -> None:
    assert run("watch", "--using", "elsewhere")[0] == 78
    settings.DISTLOCK = {}
    assert run("watch")[0] == 78
