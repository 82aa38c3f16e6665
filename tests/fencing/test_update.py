"""`objects.fenced(…)`: all rows or none, in one UPDATE; what cannot carry the guard is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from distlock import StaleToken
from tests.fencing.models import Item, Shelf, Stock

pytestmark = pytest.mark.usefixtures("database")

Rows = dict[str, tuple[int, int]]


def make(**fences: int) -> None:
    for sku, fence in fences.items():
        Stock(sku=sku, quantity=10).save(fence=fence)


def rows() -> Rows:
    """The quantity and the token of each row."""
    return {
        sku: (quantity, fence)
        for sku, quantity, fence in Stock.objects.values_list("sku", "quantity", "fence")
    }


def test_a_fenced_update_writes_its_token() -> None:
    make(a=3, b=5)
    assert Stock.objects.fenced(5).update(quantity=F("quantity") - 1) == 2
    assert rows() == {"a": (9, 5), "b": (9, 5)}


def test_all_or_none_are_written() -> None:
    make(a=3, b=9)
    with pytest.raises(StaleToken) as refused:
        Stock.objects.fenced(5).update(quantity=0)
    assert (refused.value.token, refused.value.newer) == (5, 9)
    assert rows() == {"a": (10, 3), "b": (10, 9)}


def test_the_update_may_change_what_the_filter_asked_for() -> None:
    make(a=3, b=9)
    with pytest.raises(StaleToken):
        Stock.objects.fenced(5).filter(quantity=10).update(quantity=0)
    assert rows() == {"a": (10, 3), "b": (10, 9)}


CHAINS: dict[str, Callable[[Any], Any]] = {
    "filter": lambda rows: rows.filter(sku="a"),
    "exclude": lambda rows: rows.exclude(sku="b"),
    "order_by": lambda rows: rows.order_by("-pk"),
    "all": lambda rows: rows.all(),
    "using": lambda rows: rows.using("default"),
    "annotate": lambda rows: rows.annotate(double=F("quantity") * 2).filter(double=20),
    "or": lambda rows: rows.filter(sku="a") | rows.filter(sku="b"),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_the_token_stays_through_a_chain(chain: Callable[[Any], Any]) -> None:
    make(a=9)
    with pytest.raises(StaleToken):
        chain(Stock.objects.fenced(5)).update(quantity=0)
    assert rows() == {"a": (10, 9)}


def test_an_unfenced_update_passes_and_leaves_the_token() -> None:
    make(a=9)
    Stock.objects.update(quantity=1)
    assert rows() == {"a": (1, 9)}


def test_bulk_update_is_all_or_none() -> None:
    make(a=3, b=9)
    stocks = list(Stock.objects.all())
    for stock in stocks:
        stock.quantity = 0
    with pytest.raises(StaleToken):
        Stock.objects.fenced(5).bulk_update(stocks, ["quantity"], batch_size=1)
    assert rows() == {"a": (10, 3), "b": (10, 9)}
    assert Stock.objects.fenced(9).bulk_update(stocks, ["quantity"]) == 2
    assert rows() == {"a": (0, 9), "b": (0, 9)}


REFUSED: dict[str, Callable[[], object]] = {
    "update": lambda: Stock.objects.fenced(5).update(quantity=0),
    "bulk_update": lambda: Stock.objects.fenced(5).bulk_update(
        list(Stock.objects.all()), ["quantity"]
    ),
    "claim": lambda: Stock.objects.fenced(5).claim(sku="a"),
}


@pytest.mark.parametrize("write", REFUSED.values(), ids=REFUSED)
def test_the_outer_transaction_can_go_on_after_a_refusal(write: Callable[[], object]) -> None:
    make(a=9)
    with transaction.atomic():
        make(before=1)
        with pytest.raises(StaleToken):
            write()
        make(after=1)
    assert set(rows()) == {"a", "before", "after"}


UNGUARDED: dict[str, Callable[[], object]] = {
    "delete": lambda: Stock.objects.fenced(9).filter(sku="a").delete(),
    "bulk_create": lambda: Stock.objects.fenced(9).bulk_create([Stock(sku="b")]),
    "get_or_create": lambda: Stock.objects.fenced(9).get_or_create(sku="b"),
    "update_or_create": lambda: Stock.objects.fenced(9).update_or_create(
        sku="a", defaults={"quantity": 0}
    ),
}


@pytest.mark.parametrize("write", UNGUARDED.values(), ids=UNGUARDED)
def test_what_cannot_carry_the_guard_is_refused(write: Callable[[], object]) -> None:
    make(a=5)
    with pytest.raises(TypeError, match="fenced"):
        write()
    assert rows() == {"a": (10, 5)}


def test_a_fenced_create_writes_the_token() -> None:
    Stock.objects.fenced(5).create(sku="a")
    assert rows() == {"a": (0, 5)}


def test_the_guard_and_the_write_are_one_statement() -> None:
    make(a=3)
    with CaptureQueriesContext(connection) as queries:
        Stock.objects.fenced(5).filter(sku="a").update(quantity=0)
    (update,) = [query["sql"] for query in queries if query["sql"].startswith("UPDATE")]
    assert '"fence" <= 5' in update.partition("WHERE")[2]
    assert "SELECT" not in update  # no subquery without need


@pytest.fixture
def items(database: None) -> None:  # noqa: ARG001 - made before the rows
    """Two items on a wide shelf, and one on a wider one, with tokens from 3."""
    for fence, width in (3, 2), (4, 2), (5, 9):
        shelf, _ = Shelf.objects.get_or_create(name=f"of {width} m", defaults={"width": width})
        Item(shelf=shelf, quantity=10).save(fence=fence)


def quantities() -> list[tuple[int, int]]:
    return list(Item.objects.order_by("pk").values_list("quantity", "fence"))


@pytest.mark.usefixtures("items")
def test_a_filter_may_span_a_relation() -> None:
    rows: Any = Item.objects.fenced(6).filter(shelf__width=2).order_by("-shelf__name")
    doubled = rows.annotate(double=F("quantity") * 2)
    assert doubled.update(quantity=F("double")) == 2
    assert quantities() == [(20, 6), (20, 6), (10, 5)]
    assert rows.filter(shelf__name="none").update(quantity=0) == 0


@pytest.mark.usefixtures("items")
def test_all_or_none_are_written_if_the_filter_spans_a_relation() -> None:
    with pytest.raises(StaleToken) as refused:
        Item.objects.fenced(3).filter(shelf__width=2).update(quantity=0)
    assert (refused.value.token, refused.value.newer) == (3, 4)
    assert quantities() == [(10, 3), (10, 4), (10, 5)]


def test_after_a_claim_no_former_holder_can_write() -> None:
    make(a=3)
    former = Stock.objects.get()
    current = Stock.objects.fenced(5).claim(sku="a")
    former.quantity = current.quantity = 9
    with pytest.raises(StaleToken):
        former.save(fence=4)
    current.save(fence=5)
    assert rows() == {"a": (9, 5)}


@pytest.mark.parametrize("outside", [nullcontext, transaction.atomic])
def test_a_claim_of_two_rows_writes_nothing(outside: Callable[[], Any]) -> None:
    make(a=3, b=4)
    with outside(), pytest.raises(Stock.MultipleObjectsReturned):
        Stock.objects.fenced(5).claim(quantity=10)
    assert rows() == {"a": (10, 3), "b": (10, 4)}


def test_a_claim_that_no_longer_finds_its_row_writes_nothing() -> None:
    make(a=3)
    with pytest.raises(Stock.DoesNotExist):
        Stock.objects.fenced(5).claim(fence=3)
    assert rows() == {"a": (10, 3)}


def test_a_claim_needs_a_token() -> None:
    with pytest.raises(TypeError, match="fenced"):
        Stock.objects.all().claim(sku="a")
