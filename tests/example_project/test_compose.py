"""`compose.yaml`: what it names exists, and what it runs works. No container runs here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth import authenticate
from django.core.management import call_command
from packaging.version import Version

from distlock_chaos.server import ZooKeeper
from example_project.shop.buyers import Shop, Visit
from example_project.shop.models import Product
from example_project.shop.strategies import STRATEGIES
from tests.example_project.test_sale import environment
from tests.kit.helpers import ROOT, eventually

NODES = ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
PROJECT = (ROOT / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def services(compose: Any) -> Any:
    return compose["services"]


@pytest.fixture(scope="module")
def dockerfile(services: Any) -> str:
    build = services["shop"]["build"]
    return Path(ROOT, build["context"], build["dockerfile"]).read_text()


def test_the_shop_waits_for_the_servers_that_it_uses(services: Any) -> None:
    shop = services["shop"]
    assert shop["environment"]["DISTLOCK_HOSTS"] == ",".join(f"{name}:2181" for name in NODES)
    assert shop["depends_on"] == {name: {"condition": "service_healthy"} for name in NODES}


def test_only_this_machine_reaches_the_shop(services: Any) -> None:
    published = {name: service.get("ports") for name, service in services.items()}
    assert published == {**dict.fromkeys(NODES), "shop": ["127.0.0.1:8000:8000"]}


def test_all_pages_name_the_newest_zookeeper_of_the_workflow(
    services: Any,
) -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    newest = max(re.findall(r"zookeeper: ([\d.]+) }", workflow), key=Version)
    assert {services[name]["image"] for name in NODES} == {f"zookeeper:{newest}"}
    page = (ROOT / "docs/how-to/from-nothing.md").read_text()
    assert re.findall(r"zookeeper:[\d.]+", page) == [f"zookeeper:{newest}"]
    assert f"{newest} or newer" in (ROOT / "docs/how-to/production.md").read_text()


def test_the_image_has_a_python_and_packages_of_this_project(dockerfile: str) -> None:
    python = re.search(r"^FROM python:([\d.]+)-slim$", dockerfile, re.MULTILINE)
    assert python
    assert f"Python :: {python[1]}" in PROJECT
    install = re.search(r"--editable '\.\[(\w+)\]' '(\S+)'", dockerfile)
    assert install
    extra, gunicorn = install.groups()
    assert f"\n{extra} = " in PROJECT
    assert f'"{gunicorn}"' in PROJECT


@pytest.mark.django_db
@pytest.mark.deep
def test_a_second_start_adds_nothing() -> None:
    for _ in range(2):
        call_command("fill_shelves")
        sold = Product.objects.values_list("strategy", flat=True)
        # Nobody has to run a Redis: the tent has ZooKeeper's lock without one.
        assert sorted(sold) == sorted([*({*STRATEGIES} - {"redis", "postgresql"}), "zk"])
        assert authenticate(username="demo", password="demo")


@pytest.mark.deep
def test_the_shop_starts_and_sells(
    services: Any, dockerfile: str, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    shop = services["shop"]
    folder = Path(shop["environment"]["DATABASE_URL"].removeprefix("sqlite:///")).parent
    assert f"--owner=shop {folder}" in dockerfile
    assert shop["volumes"] == [f"shop:{folder}"]
    env = environment(**shop["environment"]) | {
        "DISTLOCK_HOSTS": zookeeper.hosts,
        "DATABASE_URL": f"sqlite:///{tmp_path}/shop.sqlite3",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    assert "--bind 0.0.0.0:8000 " in shop["command"][-1]
    command = [part.replace("0.0.0.0:8000", "127.0.0.1:0") for part in shop["command"]]
    log = tmp_path / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            listening = eventually(
                lambda: re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", log.read_text()),
                timeout=60,
                message=log.read_text,
            )
            assert listening
            radio = Shop(int(listening[1]), "/products/radio/")
            visit = Visit()
            assert radio.press_button(radio.open_page(), "Ada", visit) is None
            assert visit.result == "bought", visit.detail
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
