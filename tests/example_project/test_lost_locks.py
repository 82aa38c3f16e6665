"""A sale whose lock is lost on the way: nothing sold twice, nobody charged twice or for nothing.

The rival of each test serves another buyer completely, at the moment when the holder stands still.
The holder's own session is left alone, so that only the database can know. (`test_sale.py` does it
to whole processes.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.test import Client

from distlock import Hold, LockLost, StaleToken
from example_project.shop import payment, strategies, till
from example_project.shop.models import Order, Payment, Product
from tests.example_project.test_views import JSON, TICKET, order_form

if TYPE_CHECKING:
    MakeProduct = Callable[..., Product]


def serve_another_during(monkeypatch: pytest.MonkeyPatch, step: str, product: Product) -> None:
    """Let a newer holder sell a piece just before this step of the payment."""
    original = getattr(payment, step)

    def stand_still(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(payment, step, original)
        row = Product.objects.get(pk=product.pk)
        Product.objects.fenced(row.fence + 1).filter(pk=row.pk).update(quantity=row.quantity - 1)
        Order.objects.create(product=product, buyer="Grace", idempotency_key=uuid4())
        original(*args, **kwargs)

    monkeypatch.setattr(payment, step, stand_still)


def sold_and_left(product: Product) -> tuple[int, int]:
    product.refresh_from_db()
    return product.orders.count(), product.quantity


def test_a_stale_holder_sells_nothing_and_takes_no_money(
    make_product: MakeProduct, monkeypatch: pytest.MonkeyPatch
) -> None:
    product, key = make_product("zk_fenced"), uuid4()
    serve_another_during(monkeypatch, "authorize", product)
    with pytest.raises(StaleToken):
        strategies.buy(product, buyer="Ada", key=key)
    assert sold_and_left(product) == (1, 2)
    assert Payment.objects.get(pk=key).status == "authorized"


def test_a_holder_that_stands_still_after_the_reservation_keeps_its_piece(
    make_product: MakeProduct, monkeypatch: pytest.MonkeyPatch
) -> None:
    product, key = make_product("zk_fenced"), uuid4()
    serve_another_during(monkeypatch, "capture", product)
    assert strategies.buy(product, buyer="Ada", key=key).status == "paid"
    assert sold_and_left(product) == (2, 1)
    assert Payment.objects.get().status == "charged"


def test_the_reservation_of_a_killed_worker_is_paid_at_the_next_try(
    make_product: MakeProduct,
) -> None:
    product, key = make_product("zk_fenced", quantity=0), uuid4()
    payment.authorize(key, sku=product.sku, buyer="Ada")
    Order.objects.create(product=product, buyer="Ada", idempotency_key=key, status="reserved")
    assert strategies.buy(product, buyer="Ada", key=key).status == "paid"
    assert Order.objects.get().status == "paid"
    assert Payment.objects.get().status == "charged"


def lose_at_check(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the hold be lost at its n-th check."""
    calls = 0

    def check(hold: Hold) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            monkeypatch.undo()
            raise LockLost(hold=hold)

    monkeypatch.setattr(Hold, "check", check)


def test_a_lost_lock_commits_nothing_and_the_next_try_charges_no_more(
    make_product: MakeProduct, monkeypatch: pytest.MonkeyPatch
) -> None:
    product, key = make_product("zk"), uuid4()
    lose_at_check(monkeypatch, 2)
    with pytest.raises(LockLost):
        strategies.buy(product, buyer="Ada", key=key)
    assert sold_and_left(product) == (0, 3)
    strategies.buy(product, buyer="Ada", key=key)
    assert sold_and_left(product) == (1, 2)
    assert Payment.objects.get().status == "charged"


@pytest.mark.parametrize(
    ("error", "reason", "said"),
    [
        (StaleToken(), "stale", "sold you nothing. Nothing was charged."),
        (LockLost(), "lost", "you will not be charged twice"),
    ],
)
def test_a_script_is_told_to_ask_again(
    client: Client,
    make_product: MakeProduct,
    monkeypatch: pytest.MonkeyPatch,
    *,
    error: Exception,
    reason: str,
    said: str,
) -> None:
    product = make_product("zk_fenced")

    def refuse(*_: Any, **__: Any) -> Order:
        raise error

    monkeypatch.setattr(till, "sell", refuse)
    response = client.post(product.get_buy_url(TICKET), order_form(), headers=JSON)
    assert response.status_code == 409
    assert response["Retry-After"] == "1"
    answer = response.json()
    assert (answer["reason"], answer["left"]) == (reason, 3)
    assert said in answer["detail"]
