from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from example_project.shop import payment, strategies, till
from example_project.shop.models import Order, Payment, Product
from tests.example_project.conftest import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def left(product: Product) -> int:
    product.refresh_from_db()
    return product.quantity


def test_every_strategy_has_a_function() -> None:
    assert set(strategies.STRATEGIES) == set(Product.Strategy.values)


@every_strategy
def test_it_sells_what_there_is(make_product: Callable[..., Product], strategy: str) -> None:
    product = make_product(strategy, quantity=2)
    orders = [strategies.buy(product, buyer="Ada", key=uuid4()) for _ in range(2)]
    assert {order.status for order in orders} == {"paid"}
    with pytest.raises(till.SoldOut):
        strategies.buy(product, buyer="Late", key=uuid4())
    assert left(product) == 0
    assert product.orders.count() == 2
    assert Payment.objects.filter(status="charged").count() == 2


@every_strategy
def test_the_same_key_buys_once(make_product: Callable[..., Product], strategy: str) -> None:
    product, key = make_product(strategy), uuid4()
    first = strategies.buy(product, buyer="Ada", key=key)
    assert strategies.buy(product, buyer="Ada", key=key) == first
    assert left(product) == 2
    assert Payment.objects.count() == 1


@every_strategy
def test_the_same_key_gets_its_order_after_the_stock_is_gone(
    make_product: Callable[..., Product], strategy: str
) -> None:
    product, key = make_product(strategy, quantity=1), uuid4()
    first = strategies.buy(product, buyer="Ada", key=key)
    assert strategies.buy(product, buyer="Ada", key=key) == first
    assert Payment.objects.get(pk=key).status == "charged"


@every_strategy
def test_a_declined_payment_leaves_the_piece_on_the_shelf(
    make_product: Callable[..., Product], strategy: str
) -> None:
    product, key = make_product(strategy), uuid4()
    with pytest.raises(payment.PaymentDeclined):
        strategies.buy(product, buyer=payment.DECLINED_BUYER, key=key)
    assert left(product) == 3
    assert not product.orders.exists()
    assert Payment.objects.get(pk=key).status == "declined"


def test_a_twin_request_that_wrote_first_wins(
    make_product: Callable[..., Product], monkeypatch: pytest.MonkeyPatch
) -> None:
    product, key = make_product("naive"), uuid4()

    def charge_while_the_twin_writes(*_: object, **__: object) -> None:
        monkeypatch.undo()
        strategies.naive(product.sku, buyer="Ada", key=key)

    monkeypatch.setattr(payment, "charge", charge_while_the_twin_writes)
    order = strategies.buy(product, buyer="Ada", key=key)
    assert order == Order.objects.get()
    assert left(product) == 2


@pytest.mark.parametrize("strategy", ["naive", "zk", "zk_fenced"])
def test_money_taken_before_a_crash_is_given_back_when_the_stock_is_gone(
    make_product: Callable[..., Product], strategy: str
) -> None:
    product, key = make_product(strategy, quantity=0), uuid4()
    payment.charge(key, sku=product.sku, buyer="Ada")  # ... and the worker died before the order
    with pytest.raises(till.SoldOut):
        strategies.buy(product, buyer="Ada", key=key)
    assert Payment.objects.get(pk=key).status == "refunded"


def test_conditional_goes_on_with_the_reservation_of_a_killed_worker(
    make_product: Callable[..., Product],
) -> None:
    product, key = make_product("conditional", quantity=0), uuid4()
    Order.objects.create(product=product, buyer="Ada", idempotency_key=key, status="reserved")
    assert strategies.buy(product, buyer="Ada", key=key).status == "paid"
    assert Order.objects.get().status == "paid"
    assert left(product) == 0


@pytest.mark.parametrize(("strategy", "allowed"), [("naive", True), ("conditional", False)])
def test_only_the_naive_stock_may_go_below_zero(
    make_product: Callable[..., Product], strategy: str, allowed: bool
) -> None:
    product = make_product(strategy)
    product.quantity = -1
    if allowed:
        product.save()
    else:
        with pytest.raises(IntegrityError), transaction.atomic():
            product.save()


@pytest.mark.django_db
def test_the_provider_charges_once_for_a_key() -> None:
    key = uuid4()
    payment.charge(key, sku="lamp", buyer="Ada")
    payment.charge(key, sku="lamp", buyer="Ada")
    assert Payment.objects.get().status == "charged"
