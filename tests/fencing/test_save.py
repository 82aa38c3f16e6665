"""`save(fence=…)`: a former holder's write is refused in the same UPDATE, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from distlock import StaleToken
from tests.fencing.models import Counter, Shelf, Stock

pytestmark = pytest.mark.usefixtures("database")


def row(stock: Stock) -> tuple[int, str, int]:
    """What is in the database: quantity, note and fence."""
    saved = Stock.objects.get(pk=stock.pk)
    return saved.quantity, saved.note, saved.fence


@pytest.mark.parametrize("token", [5, 6, 2**63 - 1])
def test_the_same_and_a_newer_holder_may_write(stock: Stock, token: int) -> None:
    stock.quantity = 9
    stock.save(fence=token)
    assert row(stock) == (9, "new", token)
    assert stock.fence == token


def test_an_older_holder_is_refused_and_told_by_whom(stock: Stock) -> None:
    stock.quantity = 9
    with pytest.raises(
        StaleToken, match=r"Stock with the fencing token 4 .*\(token 5\)"
    ) as refused:
        stock.save(fence=4)
    assert (refused.value.token, refused.value.newer) == (4, 5)


@pytest.mark.parametrize(
    "options", [{}, {"update_fields": ["quantity"]}, {"force_update": True}], ids=str
)
def test_a_refused_save_changes_no_field(stock: Stock, options: dict[str, Any]) -> None:
    stock.quantity, stock.note, stock.sku = 9, "stale", "stolen"
    with pytest.raises(StaleToken):
        stock.save(fence=4, **options)
    assert Stock.objects.values_list("sku", flat=True).get() == "lamp"
    assert row(stock) == (10, "new", 5)


def test_an_accepted_save_does_arithmetic_in_the_database(stock: Stock) -> None:
    stock.quantity = F("quantity") - 1
    stock.save(fence=6)
    assert row(stock) == (9, "new", 6)


@pytest.mark.parametrize("token", [4, 0, -1])
def test_a_refused_instance_keeps_its_own_token(stock: Stock, token: int) -> None:
    with pytest.raises(StaleToken):
        stock.save(fence=token)
    assert stock.fence == 5


def test_update_fields_writes_the_token_and_only_these_fields(stock: Stock) -> None:
    stock.quantity, stock.note = 9, "not written"
    stock.save(update_fields=["quantity"], fence=6)
    assert row(stock) == (9, "new", 6)


def test_a_deferred_instance_writes_only_what_it_has_read(stock: Stock) -> None:
    stale = Stock.objects.only("quantity").get()
    Stock.objects.update(note="changed since")
    stale.quantity = 9
    stale.save(fence=6)
    assert row(stock) == (9, "changed since", 6)


def test_an_unfenced_save_leaves_the_token_in_the_row(stock: Stock) -> None:
    read_long_ago = Stock.objects.get()
    stock.save(fence=7)
    read_long_ago.quantity = 3
    read_long_ago.save()
    assert row(stock) == (3, "new", 7)


def test_an_unfenced_save_cannot_set_the_token(stock: Stock) -> None:
    stock.fence = 99
    stock.save()
    stock.save(update_fields=["fence"])
    assert row(stock) == (10, "new", 5)


def test_the_token_of_one_save_does_not_guard_the_next(stock: Stock) -> None:
    stock.save(fence=5)
    Stock.objects.filter(pk=stock.pk).update(fence=9)
    stock.quantity = 3
    stock.save()
    assert row(stock) == (3, "new", 9)


@pytest.mark.parametrize(
    "options", [{}, {"update_fields": ["width"]}, {"force_update": True}], ids=str
)
def test_an_instance_that_was_never_read_is_refused_in_the_same_way(
    options: dict[str, Any],
) -> None:
    Shelf(name="top", width=80).save(fence=7)
    with transaction.atomic():
        with pytest.raises(StaleToken):
            Shelf(name="top", width=1).save(fence=5, **options)
        assert Shelf.objects.values_list("width", "fence").get() == (80, 7)


def test_using_names_the_database(stock: Stock) -> None:
    stock.save(using="other", force_insert=True, fence=9)
    stock.quantity = 1
    with pytest.raises(StaleToken):
        stock.save(using="other", fence=6)
    stock.save(using="default", fence=6)
    assert row(stock) == (1, "new", 6)
    assert Stock.objects.using("other").values_list("quantity", "fence").get() == (10, 9)


def test_the_outer_transaction_can_go_on_after_a_refusal(stock: Stock) -> None:
    with transaction.atomic():
        Stock.objects.create(sku="before")
        with pytest.raises(StaleToken):
            stock.save(fence=4)
        Stock.objects.create(sku="after")
    assert set(Stock.objects.values_list("sku", flat=True)) == {"lamp", "before", "after"}


def test_a_manager_that_hides_rows_hides_nothing_from_the_fence() -> None:
    counter = Counter(value=1, closed=True)
    counter.save(fence=5)
    counter.value = 2
    with pytest.raises(StaleToken):
        counter.save(fence=4)
    counter.save(fence=6)
    assert Counter._base_manager.values_list("value", "fence").get() == (2, 6)


def test_the_guard_and_the_write_are_one_statement(stock: Stock) -> None:
    with CaptureQueriesContext(connection) as queries:
        stock.save(fence=6)
    statements = [query["sql"] for query in queries if "fencing_stock" in query["sql"]]
    assert len(statements) == 1
    assert statements[0].startswith("UPDATE")
    assert '"fence" <= 6' in statements[0].partition("WHERE")[2]
    assert '"fence" = 6' in statements[0].partition("WHERE")[0]
