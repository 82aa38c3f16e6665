"""The shop's tasks: what they do, and with a real worker, what they do while a lock is busy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import uuid4

import pytest
from celery import Celery
from django.utils import timezone
from pytest_django import Settings

from distlock import zk_lock
from distlock_chaos.guard import GuardedProcess
from distlock_chaos.server import ZooKeeper
from example_project.shop import payment, tasks
from example_project.shop.models import Order, Payment, Product
from tests.kit.celery_tools import PATIENCE, STOP_SECONDS, disconnect
from tests.kit.helpers import ROOT, eventually
from tests.kit.services import Redis

pytestmark = pytest.mark.deep

LAMP = """
from example_project.shop.models import Product
Product.objects.create(sku="lamp", name="Lamp", quantity=3)
"""


# --- what they do --------------------------------------------------------------------------------


@pytest.fixture
def order(make_product: Callable[..., Product]) -> Callable[..., Order]:
    """Makes an order of a day ago, for a product of its own with a stock of three."""

    def make(status: str, ago: timedelta = timedelta(days=1)) -> Order:
        return Order.objects.create(
            product=make_product("conditional"),
            buyer="Ada",
            idempotency_key=uuid4(),
            status=status,
            created_at=timezone.now() - ago,
        )

    return make


def quantity(order: Order) -> int:
    return Product.objects.get(pk=order.product_id).quantity


@pytest.mark.django_db
def test_what_was_reserved_for_too_long_is_put_back(order: Callable[..., Order]) -> None:
    old, fresh, paid = order("reserved"), order("reserved", timedelta(0)), order("paid")
    payment.charge(old.idempotency_key, sku=old.product.sku, buyer="Ada")
    assert tasks.expire_reservations() == 1
    assert set(Order.objects.all()) == {fresh, paid}
    assert [quantity(one) for one in (old, fresh, paid)] == [4, 3, 3]
    assert Payment.objects.get(pk=old.idempotency_key).status == "refunded"


@pytest.mark.django_db
def test_a_paid_order_is_shipped_once(order: Callable[..., Order]) -> None:
    paid, reserved = order("paid"), order("reserved")
    assert tasks.fulfil_order(str(paid.idempotency_key))
    assert not tasks.fulfil_order(str(paid.idempotency_key))
    assert not tasks.fulfil_order(str(reserved.idempotency_key))


# --- while a lock is busy ------------------------------------------------------------------------


class Shop(NamedTuple):
    """A worker of the shop, its settings of ``DISTLOCK``, and the test's app to send tasks with."""

    app: Celery
    distlock: dict[str, Any]

    def send(self, name: str, *args: object) -> Any:
        return self.app.tasks[f"example_project.shop.tasks.{name}"].delay(*args)


@pytest.fixture(scope="module")
def running(
    zookeeper: ZooKeeper, redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    broker = redis.new_database()
    said = {
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "DATABASE_URL": f"sqlite:///{folder / 'shop.sqlite3'}",
        "DISTLOCK_HOSTS": zookeeper.hosts,
        "BROKER_URL": broker,
        "PYTHONPATH": str(ROOT),
    }
    log = folder / "worker.log"
    with patch.dict(os.environ, said):
        for arguments in (["migrate", "-v0"], ["shell", "-v0", "-c", LAMP]):
            subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, check=True)
        command = "-m celery -A example_project.celery worker -c 2 -l INFO"
        worker = GuardedProcess(
            [sys.executable, *command.split()],
            output=log,
            cwd=ROOT,
        )
    app = Celery("shop", broker=broker, backend=broker, set_as_current=False)
    try:
        eventually(lambda: " ready." in log.read_text(), PATIENCE, "A worker that serves")
        alias = {"HOSTS": zookeeper.hosts, "NAMESPACE": "/example-shop"}
        yield Shop(app, {"default": alias})
    finally:
        worker.send(signal.SIGTERM)
        try:
            worker.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # Celery waits for half a minute for a task that came together with its end.
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        finally:
            app.close()


@pytest.fixture
def shop(running: Shop, settings: Settings) -> Iterator[Shop]:
    settings.DISTLOCK = running.distlock
    yield running
    disconnect(running.app)


def test_the_nightly_report_is_queued_once(shop: Shop) -> None:
    with zk_lock("nightly-report"):
        first, second = shop.send("nightly_report"), shop.send("nightly_report")
        assert first.id == second.id
    assert first.get(timeout=PATIENCE) == {}
    # The lease ends just after the result is there.
    eventually(lambda: shop.send("nightly_report").id != first.id, PATIENCE, "another report")
