"""The till: every write of a stock is fenced, and a buyer learns its place in the line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.contrib.admin import site
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from example_project.shop import till
from example_project.shop.models import Order, Product
from tests.example_project.test_views import HTML, TICKET, order_form
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import held_elsewhere

if TYPE_CHECKING:
    MakeProduct = Callable[..., Product]


def reserved(product: Product) -> Order:
    return Order.objects.create(
        product=product, buyer="Ada", idempotency_key=uuid4(), status=Order.Status.RESERVED
    )


@pytest.mark.parametrize(
    ("write", "before", "after"),
    [
        (lambda product: till.sell(product.sku, buyer="Ada", key=uuid4()), 3, 2),
        (lambda product: till.put_back(reserved(product)), 3, 4),
        (lambda product: till.recount(product.sku, 7), 3, 7),
        (lambda product: till.restock(product.sku, 5), 0, 5),
    ],
    ids=["sell", "put back", "recount", "restock"],
)
def test_each_write_has_the_fence(
    make_product: MakeProduct, write: Callable[[Product], object], before: int, after: int
) -> None:
    product = make_product(quantity=before)
    write(product)
    product.refresh_from_db()
    assert product.quantity == after
    assert product.fence > 0


def test_a_form_of_the_admin_does_not_undo_a_sale(make_product: MakeProduct, rf: Any) -> None:
    product = make_product(quantity=3)
    till.sell(product.sku, buyer="Ada", key=uuid4())
    product.name = "Old lamp"  # by a form that was opened before the sale
    form = SimpleNamespace(changed_data=["name"])
    site._registry[Product].save_model(rf.post("/"), product, form, change=True)
    product.refresh_from_db()
    assert (product.name, product.quantity) == ("Old lamp", 2)


def test_a_request_that_waits_has_a_place_in_the_line(
    client: Client, make_product: MakeProduct, settings: Settings
) -> None:
    settings.DISTLOCK["default"]["LABEL"] = "path"
    product = make_product()

    def place(ticket: str) -> int | None:
        cache.clear()  # it may be a second old
        found: int | None = client.get(f"{product.get_absolute_url()}line/{ticket}/").json()[
            "place"
        ]
        return found

    assert place(TICKET) is None
    waiting = threading.Thread(
        target=Client().post,
        args=(product.get_buy_url(TICKET), order_form()),
        kwargs={"headers": HTML},
    )
    with held_elsewhere(f"stock:{product.sku}", work="recount"):
        waiting.start()
        eventually(lambda: place(TICKET) == 1, 10, "a place in the line")
        assert place("00000000") is None
        waiting.join()  # answered with 423
