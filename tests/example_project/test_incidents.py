"""`manage.py incident`: the page and the commands name the culprit of each."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from distlock.inspection.tree import snapshot
from distlock.keys.templates import znode_name
from distlock.models import LockEvent
from distlock_chaos.server import ZooKeeper
from example_project import settings as example_settings
from example_project.shop.management.commands.incident import INCIDENTS
from tests.admin.tools import address, said
from tests.commands.tools import run
from tests.example_project.test_sale import descendants, environment, running
from tests.kit.helpers import ROOT, alive, eventually, raw_client
from tests.kit.tools import PATIENCE

pytestmark = [
    pytest.mark.deep,
    pytest.mark.django_db,
    pytest.mark.engines("zookeeper", "redis", postgresql=False),
]


@pytest.fixture
def env(settings: Settings, zookeeper: ZooKeeper, namespace: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a shop of the test's own, whose locks this process can look at."""
    hosts = zookeeper.hosts
    if "://" not in hosts:
        with raw_client(hosts) as client:
            client.create(namespace)
        hosts += namespace
    settings.DISTLOCK = {"default": {**example_settings.DISTLOCK["default"], "HOSTS": hosts}}
    database = f"sqlite:///{tmp_path}/shop.sqlite3"
    return environment(DISTLOCK_HOSTS=hosts, DATABASE_URL=database, TMPDIR=str(tmp_path))


def manage(env: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def planted(name: str, env: dict[str, str], log: Path) -> Iterator[str]:
    """Plant an incident, yield the address of its page, and end it by Ctrl-C."""
    with running("incident", name, log=log, env=env) as process:
        eventually(lambda: "Ctrl-C" in log.read_text(), timeout=60, message=log.read_text)
        parts = descendants(process.pid)
        (page,) = re.findall(r"The page: +(\S+)", log.read_text())
        yield page
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        eventually(lambda: not any(map(alive, parts)))
    assert "Over." in log.read_text()


CULPRITS = {
    "slow-holder": (r"held by \S+:\d+ \(count the warehouse\)", "holds count the warehouse"),
    "herd": (
        r"6\d wait .* (59|60) of them: \S+:\d+ \(import prices\)",
        r"holds (import prices|GET /prices/).* \d waiters",
    ),
    "deadlock": (
        r"Deadlock: .*\(erin pays frank\).*\(frank pays erin\)",
        "deadlock.* may not end by",
    ),
    "leaked-lease": (r"held by price export \(\S+:\d+\), .* outlives", r"holds price export"),
}


@pytest.mark.parametrize("name", CULPRITS)
def test_page_and_command_name_the_culprit(
    name: str, env: dict[str, str], tmp_path: Path, admin_client: Client
) -> None:
    incident, (told, shown) = INCIDENTS[name], CULPRITS[name]
    with planted(name, env, tmp_path / "log") as page:
        eventually(
            lambda: re.search(told, run(*incident.command.split())[1]),
            PATIENCE,
            lambda: run(*incident.command.split())[1],
        )
        eventually(
            lambda: re.search(shown, said(admin_client.get(page))),
            PATIENCE,
            lambda: said(admin_client.get(page)),
        )
        first_screen = run("top", "--once")[1].splitlines()[:5]
        assert any(incident.key in line for line in first_screen)
    if incident.after:
        assert incident.after in (tmp_path / "log").read_text()
        assert [lock.kind for lock in snapshot().locks] == ["lease"]
        assert run("break", incident.key, "--yes")[0] == 0
    eventually(lambda: not snapshot().locks, PATIENCE, "all released")


def test_a_lost_session_is_in_the_history_and_beside_the_lock(
    env: dict[str, str], tmp_path: Path, admin_client: Client
) -> None:
    manage(env, "migrate", "--verbosity", "0")
    key = INCIDENTS["lost-session"].key
    with planted("lost-session", env, tmp_path / "log") as page:
        who = r"\S+:\d+ \(yearly report, run 1 \(MainThread\)\) lost it"
        eventually(lambda: re.search(who, manage(env, "distlock", "why", key)), PATIENCE)
        # The page of this process, whose database is another one.
        for row in json.loads(manage(env, "distlock", "history", key, "-o", "json")):
            LockEvent.objects.create(**row)
        assert re.search(
            r"lost report:yearly .* yearly report, run 1 \S+ \S+:\d+ Lost",
            said(admin_client.get(page)),
        )
        assert re.search(who, said(admin_client.get(address(znode_name(key)))))
    eventually(lambda: not snapshot().locks, PATIENCE, "all released")


def test_without_a_name_they_are_listed(env: dict[str, str]) -> None:
    listed = manage(env, "incident").splitlines()
    assert [line.split()[0] for line in listed] == list(INCIDENTS)
