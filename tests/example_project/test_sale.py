"""The flash sale for real: gunicorn's processes, ZooKeeper, buyers over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from http.client import HTTPConnection
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from distlock_chaos.server import ZooKeeper
from example_project.shop.management.commands import sale as command
from example_project.shop.nemesis import Kill, Pause
from example_project.shop.reports import Report
from tests.kit.helpers import ROOT, alive, eventually
from tests.kit.services import Redis

pytestmark = pytest.mark.deep

SMALL = ("--stock", "3", "--buyers", "16", "--processes", "2", "--json")


def environment(zookeeper: ZooKeeper | None = None, **more: str) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DATABASE_URL", "DJANGO_SETTINGS_MODULE"} and "DISTLOCK_" not in name
    }
    hosts = {"DISTLOCK_HOSTS": zookeeper.hosts} if zookeeper else {}
    # Long enough for two to be inside, and for one to be found there, on a busy machine.
    return {**clean, "PAYMENT_SECONDS": "0.2", **hosts, **more}


def sale(*arguments: str, env: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in hold_sale(*arguments, env=env).stdout.splitlines()]


def hold_sale(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "manage.py", "sale", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.usefixtures("postgres")  # or else it is skipped; the sale starts its own
def test_without_a_lock_the_shop_oversells(zookeeper: ZooKeeper, redis: Redis) -> None:
    env = environment(zookeeper, DISTLOCK_REDIS=redis.new_database())
    naive, *others = sale(*SMALL, "--strategy", "all", env=env)
    assert naive["oversold"] == naive["sold"] - 3 > 0
    locked = ["zk", "zk_fenced", "redis", "postgresql"]
    assert [report["strategy"] for report in others] == ["conditional", *locked]
    for report in others:
        assert report["exact"]
        assert (report["sold"], report["left"], report["oversold"]) == (3, 0, 0)
        assert report["charged"] == 3
        assert report["errors"] == 0


def test_the_database_refuses_a_holder_that_stood_still(zookeeper: ZooKeeper) -> None:
    (report,) = sale(*SMALL, "--strategy", "zk_fenced", "--pause", "1", env=environment(zookeeper))
    assert report["pauses"][-1]["held"]
    assert report["stale"] == 1
    assert report["exact"]
    assert report["errors"] == 0


def report(**values: Any) -> Report:
    usual: dict[str, Any] = {
        "strategy": "zk",
        "stock": 10,
        "buyers": 100,
        "processes": 4,
        "sold": 10,
        "left": 0,
        "oversold": 0,
        "refused": 2,
        "errors": 0,
        "unavailable": 0,
        "reconnected": 0,
        "stale": 0,
        "lost": 0,
        "charged": 10,
        "p50": 1.0,
        "p95": 2.0,
        "max": 3.0,
        "seconds": 3.0,
        "sales_per_second": 3.3,
        "kills": [],
        "pauses": [],
    }
    return Report(**{**usual, **values})


STOPPED = Pause(pid=1, held=True, seconds=5.0)


@pytest.fixture
def fake_sale(monkeypatch: pytest.MonkeyPatch) -> dict[str, Report]:
    """The command without its servers; the test says how each strategy fared."""
    reports: dict[str, Report] = {}
    monkeypatch.setattr(command, "backing", lambda **_: nullcontext())
    monkeypatch.setattr(command, "redis_backing", nullcontext)
    monkeypatch.setattr(command, "postgresql_backing", nullcontext)
    monkeypatch.setattr(command, "WebServer", lambda **_: nullcontext())
    monkeypatch.setattr(command.Command, "hold_sale", lambda _, run, *__: reports[run.title])
    return reports


def demo_of(page: str) -> str:
    """The end of `make demo` as a page shows it."""
    return (ROOT / page).read_text().partition("```text\n")[2].partition("```")[0]


@pytest.mark.parametrize("page", ["README.md", "docs/README.zh.md"])
def test_the_demo_ends_with_the_table_of_the_readme(
    page: str, fake_sale: dict[str, Report], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = demo_of(page)
    for run, line in zip(command.DEMO, shown.splitlines()[1:], strict=False):
        sold, oversold, refused, stale, errors, *times = line.removeprefix(run.title).split()
        p50, p95, speed = map(float, times)
        fake_sale[run.title] = report(
            strategy=run.strategy,
            sold=int(sold),
            charged=int(sold),
            oversold=int(oversold),
            refused=int(refused),
            stale=int(stale),
            errors=int(errors),
            p50=p50,
            p95=p95,
            sales_per_second=speed,
            kills=[Kill(pid=1, held=True)] * run.kills,
            pauses=[STOPPED] * run.pauses,
        )
    call_command("sale", demo=True, no_color=True)
    assert capsys.readouterr().out.partition("\n\n")[2] == shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strategy", "lucky"), "there is no strategy 'lucky'"),
        (("--buyers", "0"), "not a whole number from 1 up"),
        (("--stock", "-1"), "not a whole number from 0 up"),
        (("--kill", "x"), "not a whole number from 0 up"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("sale", *arguments)


@contextmanager
def running(*arguments: str, log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A shell starts its background jobs, and so these tests, with Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def descendants(pid: int) -> set[int]:
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents if parent in fresh} - found
        found |= fresh
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    env = environment(PAYMENT_SECONDS="30", TMPDIR=str(tmp_path))
    arguments = ("sale", "--strategy", "zk,redis", "--buyers", "4", "--processes", "2")
    with running(*arguments, log=tmp_path / "log", env=env) as process:
        # The sale begins when everything runs: gunicorn with two workers, ZooKeeper and Redis.
        eventually(lambda: b"the sale begins" in (tmp_path / "log").read_bytes(), timeout=60)
        children = eventually(lambda: descendants(process.pid))
        assert len(children) >= 5
        process.send_signal(number)
        process.wait(60)
        eventually(lambda: not any(map(alive, children)), timeout=60)


def test_the_demo_shop_opens_and_closes(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    said = visit_demo_shop(tmp_path, environment(zookeeper))
    assert "login demo, password demo" in said


def test_where_its_port_is_taken_the_demo_shop_offers_another() -> None:
    with TCPServer(("127.0.0.1", 0), BaseRequestHandler) as server:
        port = server.server_address[1]
        with pytest.raises(CommandError, match=rf"Port {port} is taken\. Try --port \d+"):
            call_command("serve_demo", port=port)


def visit_demo_shop(folder: Path, env: dict[str, str]) -> str:
    """Open the demo shop, look at its pages, and close it; return what it says."""
    log = folder / "log"
    arguments = ("serve_demo", "--port", "0", "--processes", "1")
    database = {"DATABASE_URL": f"sqlite:///{folder}/shop.sqlite3"}
    with running(*arguments, log=log, env=env | database) as process:
        eventually(lambda: "Ctrl-C" in log.read_text(), timeout=90)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", log.read_text())
        assert found
        shop = HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        for path in ("/", "/products/radio/", "/admin/login/", "/static/shop/shop.js"):
            shop.request("GET", path)
            response = shop.getresponse()
            assert response.read()
            assert response.status == 200, path
        shop.close()
        with closing(sqlite3.connect(folder / "shop.sqlite3")) as products:
            tent = "SELECT strategy FROM shop_product WHERE sku = 'tent'"
            assert products.execute(tent).fetchone() == ("redis",)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    return log.read_text()
