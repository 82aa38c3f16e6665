"""The till: the stock of a product, under its lock and behind its fence.

Nothing else in the shop writes a stock, except the strategies that it is compared with. Each
function takes `stock:<sku>` for its hold. In a view or a task that `@zk_locked` has given that lock
already, this is the same hold again, at no cost: the lock is reentrant.
"""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.db.models import F

from distlock import zk_lock
from example_project.shop import payment
from example_project.shop.models import Order, Product

LINE_SECONDS = 1
"""How old the line may be that a buyer is shown."""


class SoldOut(Exception):
    """No piece is left. Nothing was charged."""


def sell(sku: str, *, buyer: str, key: UUID) -> Order:
    """Sell one piece, and return the paid order. The same key gives the same order again.

    The order of the steps matters. The row is claimed before it is read, so that nobody who held
    the lock before can write once it is read. The piece is reserved after the money was set aside
    and before it is taken, so that a refused write has cost the buyer nothing. What is left to do
    then needs no lock: the piece and the money are this buyer's, and a repeated request goes on
    from the reserved order.

    :raises SoldOut, PaymentDeclined: nothing was charged
    :raises StaleToken: this process stood still while somebody else was served
    :raises LockBusy, LockUnavailable, LockLost: as `zk_lock`
    """
    with zk_lock("stock:<sku>", sku=sku, timeout=settings.LOCK_SECONDS) as hold:
        order = Order.objects.filter(idempotency_key=key).first()
        if order is None:
            product = Product.objects.fenced(hold).claim(sku=sku)
            if product.quantity < 1:
                payment.refund(key)
                raise SoldOut(sku)
            payment.authorize(key, sku=sku, buyer=buyer)
            product.quantity -= 1
            with transaction.atomic():
                product.save(update_fields=["quantity"], fence=hold)
                order = Order.objects.create(
                    product=product,
                    buyer=buyer,
                    idempotency_key=key,
                    status=Order.Status.RESERVED,
                )
        if order.status == Order.Status.RESERVED:
            payment.capture(key)
            Order.objects.filter(pk=order.pk).update(status=Order.Status.PAID)
            order.status = Order.Status.PAID
        return order


def put_back(order: Order) -> bool:
    """Put the piece of an order back on the shelf, and return whether it was still unpaid."""
    # The buyer may just now come back for it.
    with zk_lock("stock:<sku>", sku=order.product.sku) as hold:
        still = Order.objects.filter(pk=order.pk, status=Order.Status.RESERVED)
        with transaction.atomic():
            deleted, _ = still.delete()
            if deleted:
                stock = Product.objects.fenced(hold).filter(pk=order.product.pk)
                stock.update(quantity=F("quantity") + 1)
        if deleted:
            payment.refund(order.idempotency_key)
    return bool(deleted)


def recount(sku: str, counted: int) -> int:
    """Take over what the warehouse has counted, and return what is for sale."""
    with zk_lock("stock:<sku>", sku=sku) as hold:
        product = Product.objects.fenced(hold).claim(sku=sku)
        reserved = product.orders.filter(status=Order.Status.RESERVED).count()  # on its shelf
        product.quantity = max(counted - reserved, 0)
        product.save(update_fields=["quantity"], fence=hold)
    return product.quantity


def restock(sku: str, quantity: int) -> None:
    """Put new pieces on an empty shelf."""
    with zk_lock("stock:<sku>", sku=sku) as hold:
        Product.objects.fenced(hold).filter(sku=sku, quantity__lt=1).update(quantity=quantity)


def place_in_line(sku: str, ticket: str) -> int | None:
    """Return how many buyers are before the one with this ticket: 0 at the till, None if not there.

    A request's node has the path as its label (the setting `LABEL`), and a buyer's path ends with
    the ticket. A process reads the line once a second, however many of its buyers ask.
    """
    line: list[str] | None = cache.get(f"line:{sku}")
    if line is None:
        on_redis = Product.objects.filter(sku=sku, strategy=Product.Strategy.REDIS).exists()
        lock = zk_lock("stock:<sku>", sku=sku, using="redis" if on_redis else "default")
        line = [participant.label for participant in lock.participants()]
        cache.set(f"line:{sku}", line, LINE_SECONDS)
    return next((n for n, label in enumerate(line) if label.endswith(f"/{ticket}/")), None)
