"""Two connections at once: the stale UPDATE is decided when the row is free, not when it was sent.

On PostgreSQL the stale writer waits for the row lock of the newer one. Then READ COMMITTED looks at
the condition again; REPEATABLE READ and SERIALIZABLE refuse to write over what their transaction
cannot see, whatever the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.models import Count, F

from distlock import StaleToken
from tests.fencing.models import Item, Shelf, Stock
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Owner

only_postgresql = pytest.mark.parametrize("vendor", ["postgresql"], indirect=True)


@pytest.fixture
def rival(stock: Stock) -> Iterator[Owner]:  # noqa: ARG001 - the database, first
    """A thread with a connection of its own."""
    with Owner() as rival:
        yield rival
        rival.now(connections.close_all)


def save_with(fence: int, quantity: int) -> None:
    stock = Stock.objects.get()
    stock.quantity = quantity
    stock.save(fence=fence)


def update_with(fence: int, quantity: int) -> None:
    Stock.objects.fenced(fence).update(quantity=quantity)


writes = pytest.mark.parametrize("write", [save_with, update_with])


def row() -> tuple[int, int]:
    quantity, fence = Stock.objects.values_list("quantity", "fence").get()
    return quantity, fence


def somebody_awaits_a_row() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # else the same for a whole transaction
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


@only_postgresql
@writes
def test_a_stale_write_waits_for_the_newer_one_and_is_refused(
    rival: Owner, write: Callable[[int, int], None]
) -> None:
    with transaction.atomic():
        write(7, 1)
        stale = rival.submit(write, 6, 2)
        eventually(somebody_awaits_a_row)
        assert not stale.done()
    assert isinstance(stale.exception(PATIENCE), StaleToken)
    assert row() == (1, 7)


@only_postgresql
@writes
def test_a_write_that_waited_for_one_that_was_rolled_back_is_done(
    rival: Owner, write: Callable[[int, int], None]
) -> None:
    with transaction.atomic():
        write(7, 1)
        older = rival.submit(write, 6, 2)
        eventually(somebody_awaits_a_row)
        transaction.set_rollback(True)
    assert older.exception(PATIENCE) is None
    assert row() == (2, 6)


@only_postgresql
def test_a_claim_reads_what_the_former_holder_was_about_to_write(rival: Owner) -> None:
    def claim() -> Any:
        return Stock.objects.fenced(7).claim(sku="lamp").quantity

    with transaction.atomic():
        save_with(6, 9)
        claimed = rival.submit(claim)
        eventually(somebody_awaits_a_row)
    assert claimed.result(PATIENCE) == 9
    with pytest.raises(StaleToken):
        save_with(6, 8)
    assert row() == (9, 7)


def claim_with(fence: int, quantity: int) -> None:
    stock = Stock.objects.fenced(fence).claim(sku="lamp")
    stock.quantity = quantity
    stock.save(fence=fence)


def bulk_update_with(fence: int, quantity: int) -> None:
    stock = Stock.objects.get()
    stock.quantity = quantity
    Stock.objects.fenced(fence).bulk_update([stock], ["quantity"])


snapshots = pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
all_writes = pytest.mark.parametrize(
    "write", [save_with, update_with, claim_with, bulk_update_with]
)


@contextmanager
def snapshot(level: str) -> Iterator[None]:
    """A transaction that goes on to see the rows as they are now."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert row() == (10, 5)
        yield


@only_postgresql
@snapshots
@all_writes
def test_a_stale_writer_whose_snapshot_is_older_than_the_newer_write_learns_it_when_it_repeats(
    rival: Owner, level: str, write: Callable[[int, int], None]
) -> None:
    with snapshot(level):
        rival.now(save_with, 7, 1)
        with pytest.raises(OperationalError, match="could not serialize"):
            write(6, 2)
        assert row() == (10, 5)  # its transaction can go on, with what it has seen
    with pytest.raises(StaleToken) as refused:
        write(6, 2)
    assert (refused.value.token, refused.value.newer) == (6, 7)
    assert row() == (1, 7)


@only_postgresql
@snapshots
@all_writes
def test_a_stale_write_that_waits_is_refused_in_a_snapshot_too(
    rival: Owner, level: str, write: Callable[[int, int], None]
) -> None:
    def stale() -> None:
        with snapshot(level):
            write(6, 2)

    with transaction.atomic():
        save_with(7, 1)
        waiting = rival.submit(stale)
        eventually(somebody_awaits_a_row)
    refused = waiting.exception(PATIENCE)
    assert isinstance(refused, OperationalError)
    assert "could not serialize" in str(refused)
    assert row() == (1, 7)


@only_postgresql
@snapshots
@all_writes
def test_a_snapshot_that_is_older_than_a_stale_write_can_be_tried_again(
    rival: Owner, level: str, write: Callable[[int, int], None]
) -> None:
    """The lock is still ours: the serialization failure is no reason to give up."""
    with snapshot(level):
        rival.now(save_with, 6, 1)
        with pytest.raises(OperationalError, match="could not serialize"):
            write(7, 2)
    write(7, 2)
    assert row() == (2, 7)


# --- filters that span a relation ----------------------------------------------------------------

ITEMS = Item.objects.all()
JOINED: dict[str, Any] = {
    "filter": ITEMS.filter(shelf__width=2),
    "exclude": ITEMS.exclude(shelf__width=1),
    "or": ITEMS.filter(shelf__width=2) | ITEMS.filter(shelf__width=3),
    "annotate": ITEMS.annotate(width=F("shelf__width")).filter(width=2),
    "aggregate": ITEMS.annotate(shelves=Count("shelf__width")).filter(shelves=1),
    "distinct": ITEMS.filter(shelf__width=2).distinct(),
    "distinct_on": ITEMS.filter(shelf__width=2).order_by("shelf").distinct("shelf"),
    "select_for_update": ITEMS.filter(shelf__width=2).select_for_update(of=("self",)),
    "order_by": ITEMS.filter(shelf__width=2).order_by("shelf__width"),
    "select_related": ITEMS.filter(shelf__width=2).select_related("shelf"),
    "values": ITEMS.filter(shelf__width=2).values("quantity"),
    "extra": ITEMS.filter(shelf__width=2).extra(where=["quantity > 0"]),
    # These stay in the WHERE of the UPDATE itself.
    "pk__in": ITEMS.filter(pk__in=ITEMS.filter(shelf__width=2)),
    "only_order_by": ITEMS.order_by("shelf__width"),
    "only_select_related": ITEMS.select_related("shelf"),
}


def update_joined(rows: Any, fence: int, quantity: int) -> None:
    rows.fenced(fence).update(quantity=quantity)


def claim_joined(rows: Any, fence: int, quantity: int) -> None:
    item = rows.fenced(fence).claim()
    item.quantity = quantity
    item.save(fence=fence)


def bulk_update_joined(rows: Any, fence: int, quantity: int) -> None:
    item = Item.objects.get()
    item.quantity = quantity
    rows.fenced(fence).bulk_update([item], ["quantity"])


def save_joined(rows: Any, fence: int, quantity: int) -> None:  # noqa: ARG001 - like the others
    item = Item.objects.get()
    item.quantity = quantity
    item.save(fence=fence)


JOINED_WRITES = [
    pytest.param(update_joined, rows, id=f"update-{name}") for name, rows in JOINED.items()
] + [
    pytest.param(claim_joined, JOINED["filter"], id="claim"),
    pytest.param(claim_joined, JOINED["exclude"], id="claim-exclude"),
    pytest.param(bulk_update_joined, JOINED["filter"], id="bulk_update"),
    pytest.param(save_joined, None, id="save"),
]


@only_postgresql
@pytest.mark.parametrize(("write", "rows"), JOINED_WRITES)
def test_a_stale_write_whose_filter_spans_a_relation_is_refused(
    rival: Owner, write: Callable[[Any, int, int], None], rows: Any
) -> None:
    """Django moves such a filter into a subquery, which PostgreSQL does not evaluate again."""
    Item(shelf=Shelf.objects.create(name="wall", width=2), quantity=10).save(fence=5)
    with transaction.atomic():
        Item.objects.fenced(7).update(quantity=1)
        stale = rival.submit(write, rows, 6, 2)
        eventually(somebody_awaits_a_row)
    assert isinstance(stale.exception(PATIENCE), StaleToken)
    assert Item.objects.values_list("quantity", "fence").get() == (1, 7)
