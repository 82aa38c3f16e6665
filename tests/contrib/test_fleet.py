"""`manage.py distlock metrics`: all locks of all aliases, and the files that come along."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from distlock import zk_lease, zk_lock, zk_locked, zk_semaphore
from distlock.contrib.prometheus import Metrics, fleet
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ZooKeeper
from tests.commands.tools import run
from tests.inspection.tools import cleared, stand
from tests.kit.helpers import ROOT, spawn_python
from tests.kit.tools import PATIENCE, Tree

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

CODE = """
import sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2])
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "distlock", "metrics", "--port", "0"])
"""
FILES = ROOT / "distlock/contrib/prometheus"

Samples = dict[tuple[str, str], float]


def parsed(text: str) -> Samples:
    """The samples of the alias default, by name and template."""
    return {
        (
            sample.name.removeprefix("distlock_fleet_"),
            sample.labels.get("template", ""),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["using"] == "default"
    }


def scrape() -> Samples:
    status, out, errors = run("metrics")
    assert (status, errors) == (0, "")
    return parsed(out)


def test_it_counts_by_template(tree: Tree) -> None:
    @zk_locked("stock:<sku>")
    def buy(sku: int) -> None:
        with zk_lock("stock:<sku>", sku=43), zk_lock("mail:5"), zk_lock("nightly"), semaphore:
            assert sku == 42
            stand(tree, "old:1", data=b'{"v": 1, "owner": "o", "waited": 0}')
            stand(tree, "stock:42")
            stand(tree, "stock:42")
            samples.update(scrape())

    semaphore, samples = zk_semaphore("customer:<id>", 3, id=7), Samples()
    lease = zk_lease("job:1", 600, owner="me")
    assert lease.acquire()
    with cleared(tree):
        buy(42)
    for name, value in {"locks": 2, "holders": 2, "waiters": 2, "permits": 0}.items():
        assert samples[name, "stock:<sku>"] == value
    assert 0 < samples["longest_wait_seconds", "stock:<sku>"] < PATIENCE
    assert 0 < samples["longest_hold_seconds", "old:*"] < PATIENCE
    assert samples["permits", "customer:<id>"] == 3
    assert samples["permits_used", "customer:<id>"] == samples["holders", "customer:<id>"] == 1
    assert samples["waiters", "mail:*"] == 0
    assert {template for name, template in samples if name == "holders"} == {
        *("stock:<sku>", "customer:<id>", "mail:*", "nightly", "job:*", "old:*"),
    }
    assert (samples["up", ""], samples["sessions", ""], samples["deadlocks", ""]) == (1, 2, 0)


def test_it_counts_deadlocks(tree: Tree) -> None:
    with cleared(tree):
        for key, owners in (("1", "ab"), ("2", "ba")):
            for owner in owners:
                stand(tree, key, data=owner)
        assert scrape()["deadlocks", ""] == 1


def test_there_are_no_more_labels_than_a_server_bears(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "MOST", 2)
    with cleared(tree):
        for key in ("a:1", "a:2", "b:1", "c:1", "d:1"):
            stand(tree, key)
        locks = {template: value for (name, template), value in scrape().items() if name == "locks"}
    assert locks == {"a:*": 2, "b:*": 1, "other": 2}


def test_an_alias_that_is_away_does_not_hide_the_others(tree: Tree, settings: Settings) -> None:
    away = {"HOSTS": f"127.0.0.1:{free_ports(1)[0]}", "CONNECT_TIMEOUT": 0.2}
    settings.DISTLOCK = {"away": away, **settings.DISTLOCK}
    with cleared(tree):
        stand(tree, "key")
        status, out, _ = run("metrics")
    assert status == 0
    assert 'distlock_fleet_up{using="away"} 0.0' in out
    assert parsed(out)["up", ""] == parsed(out)["locks", "key"] == 1


def test_it_is_served_until_the_process_is_asked_to_end(zookeeper: ZooKeeper, tree: Tree) -> None:
    with cleared(tree), spawn_python(CODE, zookeeper.hosts, tree.namespace) as process:
        assert process.stdout
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/metrics", process.stdout.readline())
        for count in (1, 2):
            stand(tree, "key")
            with urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310 - http
                samples = parsed(answer.read().decode())
            assert samples["waiters", "key"] == count - 1
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=PATIENCE)[1] == ""
        assert process.returncode == 0


# --- files ---------------------------------------------------------------------------------------


def known() -> set[str]:
    """The names of all series, with those that a counter and a histogram add to theirs."""
    registry = CollectorRegistry()
    Metrics(registry)
    names = {metric.name for metric in registry.collect()}
    names |= {f"distlock_fleet_{name}" for name in {**fleet.OF_ALIAS, **fleet.OF_TEMPLATE}}
    return names | {f"{name}{end}" for name in names for end in ("_total", "_bucket")}


def queries(file: Path) -> Iterator[str]:
    text = file.read_text()
    if file.suffix == ".yml":
        for group in yaml.safe_load(text)["groups"]:
            for rule in group["rules"]:
                assert rule["alert"]
                assert rule["labels"]["severity"] in ("critical", "warning")
                assert rule["annotations"]["summary"]
                yield rule["expr"]
        return
    dashboard = json.loads(text)
    yield from (one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query")
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.mark.parametrize(
    ("option", "file"), [("--rules", "alerts.yml"), ("--dashboard", "dashboard.json")]
)
def test_the_files_use_metrics_that_exist_and_are_written_by_the_command(
    option: str, file: str
) -> None:
    used = {
        name for query in queries(FILES / file) for name in re.findall(r"\bdistlock_\w+", query)
    }
    assert len(used) > 7
    assert used <= known()
    assert run("metrics", option)[1] == (FILES / file).read_text()
