from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

from distlock import zk_lock
from example_project.shop.models import Order, Product
from example_project.shop.payment import DECLINED_BUYER

JSON = {"Accept": "application/json"}
TICKET = "3f2a91c0"
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def order_form(buyer: str = "Ada", key: UUID | None = None) -> dict[str, str]:
    return {"buyer": buyer, "idempotency_key": str(key or uuid4())}


def test_the_shop_speaks_chinese(client: Client, make_product: Callable[..., Product]) -> None:
    url = make_product("naive").get_absolute_url()
    answer = client.post("/i18n/setlang/", {"language": "zh-hans", "next": url}, headers=HTML)
    page = client.get(answer["Location"]).content.decode()
    assert answer["Location"] == url
    assert '<html lang="zh-hans">' in page
    for text in ("购买一件", "剩余 <strong>3</strong> 件", "读取、判断、付款、写入"):
        assert text in page


def test_a_script_gets_json(client: Client, make_product: Callable[..., Product]) -> None:
    product = make_product()
    response = client.post(product.get_buy_url(TICKET), order_form(), headers=JSON)
    order = Order.objects.get()
    assert response.status_code == 201
    assert response.json() == {"order": order.pk, "url": order.get_absolute_url(), "left": 2}


def test_a_repeated_post_buys_once(client: Client, make_product: Callable[..., Product]) -> None:
    product = make_product()
    form = order_form()
    url = product.get_buy_url(TICKET)
    first, second = (client.post(url, form, headers=JSON) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert Order.objects.count() == 1


@pytest.mark.parametrize("headers", [JSON, HTML])
@pytest.mark.parametrize(
    ("quantity", "form", "expected"),
    [
        (0, order_form(), (409, "Sold out")),
        (3, order_form(DECLINED_BUYER), (402, "declined")),
        (3, {"buyer": "Ada", "idempotency_key": "one"}, (400, "fill in your name")),
        (3, {"buyer": "A\0a", "idempotency_key": str(UUID(int=1))}, (400, "fill in your name")),
        (3, {}, (400, "fill in your name")),
    ],
)
def test_a_refusal_says_why_and_sells_nothing(
    client: Client,
    make_product: Callable[..., Product],
    *,
    headers: dict[str, str],
    quantity: int,
    form: dict[str, str],
    expected: tuple[int, str],
) -> None:
    product = make_product(quantity=quantity)
    response = client.post(product.get_buy_url(TICKET), form, headers=headers)
    assert response.status_code == expected[0]
    assert expected[1] in response.content.decode()
    assert not Order.objects.exists()
    product.refresh_from_db()
    assert product.quantity == quantity


@pytest.mark.parametrize("headers", [JSON, HTML])
def test_a_busy_product_answers_423(
    client: Client, make_product: Callable[..., Product], headers: dict[str, str]
) -> None:
    product, form = make_product(), order_form()
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with zk_lock(f"stock:{product.sku}"):
            locked.set()
            done.wait(30)

    rival = threading.Thread(target=hold)
    rival.start()
    try:
        assert locked.wait(10)
        response = client.post(product.get_buy_url(TICKET), form, headers=headers)
    finally:
        done.set()
        rival.join()
    assert response.status_code == 423
    assert int(response["Retry-After"]) >= 1
    if headers is HTML:
        page = response.content.decode()
        assert "Another buyer is at the till" in page
        assert f'value="{form["idempotency_key"]}"' in page  # the button repeats the purchase
    assert not Order.objects.exists()


def test_the_admin_leaves_the_stock_to_the_till(
    client: Client, make_product: Callable[..., Product]
) -> None:
    product = make_product(quantity=0)
    client.force_login(get_user_model().objects.create_superuser("demo"))
    change = f"/admin/shop/product/{product.pk}/change/"
    form = {"sku": product.sku, "name": "Old lamp", "price": 5, "strategy": "zk", "quantity": 99}
    assert client.post(change, form).status_code == 302
    product.refresh_from_db()
    assert (product.name, product.quantity, product.fence) == ("Old lamp", 0, 0)
    client.post("/admin/shop/product/", {"action": "restock", "_selected_action": [product.pk]})
    product.refresh_from_db()
    assert product.quantity > 0
    assert product.fence > 0


@pytest.mark.django_db
def test_migrations_are_complete() -> None:
    call_command("makemigrations", "shop", check=True, dry_run=True, verbosity=0)
