"""Measure a user's unit tests of locked code on each kind of ZooKeeper.

python -m benchmarks.unit_tests [--rounds 5] [--tests 200]

A generated project has so many tests without a database: half call a locked view, half a locked
function, and a tenth takes the lock in a second session first. pytest runs the kinds in interleaved
rounds. Each test begins with nothing, except under ``one session``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

ROOT = Path(__file__).resolve().parent.parent

KINDS: Final = ("no lock", "memory", "thread", "process", "one session", "real")
#: The others are compared with this one.
BASE: Final = "memory"

PROJECT: Final = {
    "shop.py": """\
import os
from django.http import HttpResponse
from django.urls import path
from distlock import zk_locked

locked = zk_locked if os.environ["KIND"] != "no lock" else lambda key: lambda function: function

@locked("stock:<sku>")
def buy(request, sku):
    return HttpResponse(sku)

@locked("report:<day>")
def report(day):
    return day

urlpatterns = [path("buy/<sku>", buy)]
""",
    "shop_settings.py": """\
SECRET_KEY = "benchmark"
INSTALLED_APPS = ["distlock"]
MIDDLEWARE = ["distlock.middleware.DistlockMiddleware"]
ROOT_URLCONF = "shop"
DISTLOCK = {"default": {"HOSTS": "127.0.0.1:1", "CONNECT_TIMEOUT": 10}}
""",
    "conftest.py": """\
import json, os, time, uuid
from pathlib import Path
import pytest
from django.test import override_settings
from distlock.embedded.server import EmbeddedZooKeeper

KIND = os.environ["KIND"]
ends = []

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    outcome = yield
    ends.append(time.perf_counter())
    return outcome

def pytest_sessionfinish():  # the first test also starts the server
    Path("told.json").write_text(json.dumps((ends[-1] - ends[0]) / (len(ends) - 1)))

def options(hosts):
    return {"default": {"HOSTS": hosts, "NAMESPACE": f"/{uuid.uuid4()}", "CONNECT_TIMEOUT": 10}}

@pytest.fixture(scope="session")
def thread():
    with EmbeddedZooKeeper() as server:
        yield server

if KIND == "memory":
    @pytest.fixture(autouse=True)
    def _locks(distlock_memory):
        pass
elif KIND == "one session":
    @pytest.fixture(autouse=True, scope="session")
    def _locks(zookeeper_embedded):
        with override_settings(DISTLOCK=options(zookeeper_embedded.hosts)):
            yield
elif KIND != "no lock":
    @pytest.fixture(autouse=True)
    def _locks(request, settings):
        name = {"process": "zookeeper_embedded", "real": "zookeeper"}.get(KIND, KIND)
        settings.DISTLOCK = options(request.getfixturevalue(name).hosts)
""",
    "test_shop.py": """\
import os
import pytest
from distlock.testing import hold
from shop import report

@pytest.mark.parametrize("number", range(int(os.environ["TESTS"])))
def test_shop(client, number):
    if number % 10 == 9 and os.environ["KIND"] != "no lock":
        with hold(f"report:{number}"):
            pass
    if number % 2:
        assert report(str(number)) == str(number)
    else:
        assert client.get(f"/buy/{number}").content == str(number).encode()
""",
}


class Run(NamedTuple):
    """What a run took, in seconds."""

    whole: float
    #: A test, without those of the first, which starts the server.
    test: float


def run(kind: str, tests: int, folder: Path) -> Run:
    """Run the project's tests with pytest."""
    environment = {
        "KIND": kind,
        "TESTS": str(tests + 1),
        "DJANGO_SETTINGS_MODULE": "shop_settings",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
    }
    began = time.perf_counter()
    alone = "-p no:cacheprovider -c /dev/null --rootdir ."
    subprocess.run(
        [sys.executable, "-m", "pytest", *alone.split(), "."],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    whole = time.perf_counter() - began
    return Run(whole, json.loads((folder / "told.json").read_text()))


def main() -> None:
    """Print the medians, and the medians of each round's ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unit_tests")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tests", type=int, default=200)
    given = parser.parse_args()
    runs: dict[str, list[Run]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in PROJECT.items():
            (folder / file).write_text(text)
        for _ in range(given.rounds):
            for kind in KINDS:
                runs[kind].append(run(kind, given.tests, folder))
    sys.stdout.write(f"{'':12} {'the run':>9} {'a test':>9}   beside {BASE}: run, test\n")
    for kind in KINDS:
        whole, test = (median(column) for column in zip(*runs[kind], strict=True))
        ratios = [
            median(a[place] / b[place] for a, b in zip(runs[kind], runs[BASE], strict=True))
            for place in range(2)
        ]
        line = f"{kind:12} {whole:7.2f} s {1000 * test:6.2f} ms   {ratios[0]:.2f}, {ratios[1]:.2f}"
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
