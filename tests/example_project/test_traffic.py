"""`serve_demo --load N --deadlock`: what there is to be seen on the admin page."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pytest_django import Settings

from distlock.inspection import wait_graph
from distlock.inspection.tree import snapshot
from distlock_chaos.server import ZooKeeper
from tests.example_project.test_sale import SMALL, descendants, environment, hold_sale, running
from tests.kit.helpers import alive, eventually, raw_client

pytestmark = pytest.mark.deep


@pytest.fixture
def demo_settings(settings: Settings, zookeeper: ZooKeeper, namespace: str) -> str:
    """The hosts of the demo, whose namespace this process can look at."""
    with raw_client(zookeeper.hosts) as client:
        client.create(namespace)
    settings.DISTLOCK = {
        "default": {"HOSTS": zookeeper.hosts + namespace, "NAMESPACE": "/example-shop"}
    }
    return zookeeper.hosts + namespace


def test_customers_and_staff_come_and_end_with_the_demo(
    tmp_path: Path, zookeeper: ZooKeeper, demo_settings: str
) -> None:
    log, database = tmp_path / "log", tmp_path / "shop.sqlite3"
    env = environment(
        zookeeper,
        DISTLOCK_HOSTS=demo_settings,
        DATABASE_URL=f"sqlite:///{database}",
        TMPDIR=str(tmp_path),
    )
    arguments = ("serve_demo", "--port", "0", "--processes", "2", "--load", "4", "--deadlock")
    with running(*arguments, log=log, env=env) as process:
        eventually(lambda: "Ctrl-C" in log.read_text(), timeout=90)
        assert re.search(
            r"The locks: +http://127\.0\.0\.1:\d+/admin/distlock/lock/", log.read_text()
        )

        seen: dict[str, str] = {}
        waited_for: set[str] = set()
        bought: set[str] = set()
        stuck: list[wait_graph.Cycle] = []

        def shown() -> bool:
            """Whether it was all there once; which is much to ask of a single moment."""
            locks = snapshot().locks
            seen.update((lock.key, lock.kind) for lock in locks)
            waited_for.update(lock.key for lock in locks if lock.waiting)
            with closing(sqlite3.connect(database)) as connection:
                orders = "SELECT buyer FROM shop_order"
                bought.update(buyer for (buyer,) in connection.execute(orders))
            stuck.extend(wait_graph.deadlocks() if not stuck else ())
            return (
                {"read/write", "semaphore", "lease", "mutex"} <= set(seen.values())
                and bool({"stock:radio", "stock:camera"} & waited_for)
                and {"report:inventory", "delivery:vans"} <= waited_for
                and len(bought) == 4
                and bool(stuck)
            )

        eventually(shown, timeout=120, message="all that is to be seen")
        assert all(buyer.startswith("customer-") for buyer in bought)
        assert {link.lock.key for link in stuck[0].links} == {
            "account:alice",
            "account:bob",
            "account:carol",
        }
        children = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        eventually(lambda: not any(map(alive, children)))
    assert log.read_text().endswith("Closed.\n")


# --- on a machine without Java -------------------------------------------------------------------


EMBEDDED = "(embedded; for development: one process, nothing on disk, no replication)\n"


@pytest.fixture
def env() -> dict[str, str]:
    # Neither Java nor anything else: the demo needs only its own Python.
    return environment(PATH="", JAVA_HOME="")


@pytest.mark.parametrize(
    "arguments", [("zk", "--kill", "1"), ("zk_fenced", "--pause", "1")], ids=" ".join
)
def test_a_sale_is_exact(env: dict[str, str], arguments: tuple[str, ...]) -> None:
    done = hold_sale(*SMALL, "--strategy", *arguments, env=env)
    report = json.loads(done.stdout)
    assert report["exact"]
    assert [hit["held"] for hit in report["kills"] + report["pauses"]][-1]
    assert done.stderr.startswith("ZooKeeper ready on 127.0.0.1:")
    assert done.stderr.endswith(EMBEDDED)
