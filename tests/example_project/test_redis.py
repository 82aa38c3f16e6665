"""The sale on Redis: it needs no ZooKeeper, and without Redis the other sales go on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from django.core.exceptions import ValidationError

from example_project.shop.models import Product
from tests.example_project.test_sale import SMALL, environment, hold_sale, sale

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django import Settings

    from tests.kit.services import Redis

pytestmark = pytest.mark.deep

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def env(redis: Redis) -> dict[str, str]:
    # Nothing to start: neither Java nor redis-server.
    return environment(PATH="", JAVA_HOME="", DISTLOCK_REDIS=redis.new_database())


def test_ten_of_a_hundred_buy_without_a_zookeeper(env: dict[str, str]) -> None:
    done = hold_sale("--strategy", "redis", env=env)
    row = " ".join(done.stdout.splitlines()[2].split())
    assert row.startswith("redis 10 0 ")
    assert done.stderr == "redis: the sale begins\n"


def test_a_killed_holder_loses_and_doubles_nothing(env: dict[str, str]) -> None:
    (report,) = sale(*SMALL, "--strategy", "redis", "--kill", "1", env=env)
    assert report["kills"][-1]["held"]
    assert (report["exact"], report["errors"]) == (True, 0)


def test_a_holder_that_stood_still_stops_at_its_check(env: dict[str, str]) -> None:
    (report,) = sale(*SMALL, "--strategy", "redis", "--pause", "1", env=env)
    assert report["pauses"][-1]["held"]
    assert (report["exact"], report["lost"]) == (True, 1)


def test_it_starts_its_own_redis(redis: Redis, tmp_path: Path) -> None:
    del redis  # It is installed.
    (tmp_path / "redis-server").symlink_to(shutil.which("redis-server") or "")
    env = environment(PATH=str(tmp_path), JAVA_HOME="", TMPDIR=str(tmp_path))
    (report,) = sale(*SMALL, "--strategy", "redis", env=env)
    assert report["exact"]
    assert [path.name for path in tmp_path.iterdir()] == ["redis-server"]


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ({}, "redis-server was not found. Install it with `apt-get install redis-server`"),
        ({"DISTLOCK_REDIS": NOWHERE}, "Redis at 127.0.0.1:1 did not answer in time."),
    ],
    ids=["not installed", "away"],
)
def test_without_redis_the_other_sales_go_on(missing: dict[str, str], reason: str) -> None:
    env = environment(PATH="", JAVA_HOME="") | missing
    done = hold_sale(*SMALL, env=env)
    assert f"The sales on Redis are left out. {reason}" in done.stderr
    assert len(done.stdout.splitlines()) == 4
    with pytest.raises(AssertionError, match=reason):
        hold_sale(*SMALL, "--strategy", "redis", env=env)


def test_the_admin_says_what_a_product_on_redis_needs(settings: Settings) -> None:
    product = Product(sku="lamp", name="Lamp", quantity=3, strategy="redis")
    with pytest.raises(ValidationError, match="DISTLOCK_REDIS"):
        product.clean()
    settings.DISTLOCK = {**settings.DISTLOCK, "redis": {"HOSTS": NOWHERE}}
    product.clean()
