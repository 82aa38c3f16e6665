"""Metrics of many processes: gunicorn's workers, and what a killed one leaves behind."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distlock_chaos.guard import GuardedProcess
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import ROOT, eventually
from tests.kit.tools import PATIENCE
from tests.servers.site import STOP_SECONDS, WebServer, end

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis", postgresql=False)]


class Site(WebServer):
    """The server, and what any of its workers says of all."""

    def sample(self, name: str, **labels: str) -> float:
        """The sum of the samples of that name which have these labels."""
        # A worker that starts opens its files first, and gives them their size then
        # (prometheus_client, `MmapedDict.__init__`): in between, nobody can read them.
        said = eventually(lambda: self.request("GET", "/metrics/")[1], PATIENCE)
        return sum(
            sample.value
            for family in text_string_to_metric_families(said["text"])
            for sample in family.samples
            if sample.name == f"distlock_{name}" and labels.items() <= sample.labels.items()
        )

    def await_sample(self, value: float, name: str, **labels: str) -> None:
        eventually(lambda: self.sample(name, **labels) == value, PATIENCE, f"{name} of {value}")


@contextmanager
def gunicorn(
    zookeeper: ZooKeeper, namespace: str, folder: Path, *options: str, **environment: str
) -> Iterator[Site]:
    samples = folder / "samples"
    samples.mkdir()
    alias = {"HOSTS": zookeeper.hosts, "NAMESPACE": namespace, "CONNECT_TIMEOUT": PATIENCE}
    environment |= {
        "METRICS_SITE": json.dumps({"default": alias}),
        "PROMETHEUS_MULTIPROC_DIR": str(samples),
        "PYTHONPATH": str(ROOT),
    }
    config = "--config=python:tests.contrib.gunicorn_conf"
    command = [sys.executable, "-m", "gunicorn", config, *options]
    log = folder / "server.log"
    with patch.dict(os.environ, environment):
        process = GuardedProcess([*command, "tests.contrib.metrics_site"], output=log, cwd=ROOT)
    try:
        yield Site(process, log, r"Listening at: http://127\.0\.0\.1:(\d+)")
    finally:
        process.send(signal.SIGTERM)
        process.wait(STOP_SECONDS)


@pytest.mark.parametrize("options", [[], ["--preload"]], ids=["each", "preload"])
def test_any_worker_tells_of_all_and_a_killed_one_holds_nothing(
    zookeeper: ZooKeeper, namespace: str, tmp_path: Path, options: list[str]
) -> None:
    with gunicorn(zookeeper, namespace, tmp_path, *options) as site:
        served: Counter[int] = Counter()

        def two_serve() -> bool:  # others may still be starting
            served[site.post("/stock/7/")[1]["pid"]] += 1
            return len(served) > 1

        eventually(two_serve, timeout=60, message="Two workers served a request")
        template = {"template": "stock:<sku>"}
        acquired = {"outcome": "acquired", **template}
        assert site.sample("acquires_total", **acquired) == served.total()
        assert site.sample("wait_seconds_count", **template) == served.total()
        assert site.sample("hold_seconds_count", **template) == served.total()
        assert site.sample("held") == 0

        keepers: set[int] = set()

        def two_hold() -> bool:
            keepers.add(site.post("/hold/")[1]["pid"])
            return len(keepers) == 2

        eventually(two_hold, timeout=60, message="Two workers were asked to hold a lock")
        for holding in (2, 1):
            site.await_sample(holding, "held")
            end(keepers.pop(), signal.SIGKILL)
        site.await_sample(0, "held")
        assert site.sample("acquires_total", **acquired) == served.total()


def test_what_the_master_holds_is_counted_once(
    zookeeper: ZooKeeper, namespace: str, tmp_path: Path
) -> None:
    with gunicorn(zookeeper, namespace, tmp_path, "--preload", METRICS_SITE_HOLDS="yes") as site:
        for _ in range(10):
            assert site.post("/stock/7/")[0] == 200
        assert site.sample("held") == 1
        assert site.sample("acquires_total") == 11
