"""What the shop's tasks do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from distlock.celery.queued_once import QueuedOnce
from example_project.shop import payment, tasks
from example_project.shop.models import Order, Payment, Product


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


def test_the_nightly_report_is_queued_once() -> None:
    assert isinstance(tasks.nightly_report, QueuedOnce)
