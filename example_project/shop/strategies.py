"""Interchangeable ways to sell a piece, for comparison: only the care they take differs.

The shop's own way is `till.sell`, here under the name `zk_fenced`; the others show what each part
of it is good for. Each takes the SKU, the buyer and the idempotency key, and returns the paid order
or raises `SoldOut`, `PaymentDeclined` or, under a lock, `LockBusy`, `LockUnavailable` and
`LockLost`. All ask the payment provider *inside* the critical section, which so spans two systems:
the database and the provider.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F

from distlock import Hold, zk_lock
from example_project.shop import payment, till
from example_project.shop.models import Order, Product
from example_project.shop.till import SoldOut


class Strategy(Protocol):
    """What every strategy looks like."""

    def __call__(self, sku: str, *, buyer: str, key: UUID) -> Order: ...


def naive(sku: str, *, buyer: str, key: UUID) -> Order:
    """Read, decide, pay, write: right for one buyer at a time, wrong for two.

    Everyone who reads while another one pays sees the same stock, decides the same and writes
    the same number.
    """
    return _sell(sku, buyer=buyer, key=key)


def zk(sku: str, *, buyer: str, key: UUID, using: str = "default") -> Order:
    """The same lines as `naive`, for one buyer of this product at a time, in all processes.

    A process that is stopped past the end of its session finds the lock lost at its next check,
    and writes nothing. What remains is a stop between the last check and the COMMIT: no fence
    refuses that write.
    """
    with zk_lock("stock:<sku>", sku=sku, timeout=settings.LOCK_SECONDS, using=using) as hold:
        return _sell(sku, buyer=buyer, key=key, hold=hold)


def conditional(sku: str, *, buyer: str, key: UUID) -> Order:
    """Reserve with one conditional UPDATE, then pay, then confirm; undo it when payment fails.

    The honest alternative while the stock is one row of one database: no lock service is needed.
    Its price is the undo, and that a worker killed while it pays leaves a reservation behind
    until the buyer asks again with the same key, or a clean-up job finds it.
    """
    order = Order.objects.filter(idempotency_key=key).first()
    if order is None:
        with transaction.atomic():
            if not Product.objects.filter(sku=sku, quantity__gte=1).update(
                quantity=F("quantity") - 1
            ):
                raise SoldOut(sku)
            order = Order.objects.create(
                product=Product.objects.get(sku=sku),
                buyer=buyer,
                idempotency_key=key,
                status=Order.Status.RESERVED,
            )
    reserved = Order.objects.filter(pk=order.pk, status=Order.Status.RESERVED)
    if order.status == Order.Status.RESERVED:
        try:
            payment.charge(key, sku=sku, buyer=buyer)
        except payment.PaymentDeclined:
            with transaction.atomic():
                undone, _ = reserved.delete()
                if undone:  # a twin request with the same key may have undone it already
                    Product.objects.filter(sku=sku).update(quantity=F("quantity") + 1)
            raise
        reserved.update(status=Order.Status.PAID)
        order.status = Order.Status.PAID
    return order


def _sell(sku: str, *, buyer: str, key: UUID, hold: Hold | None = None) -> Order:
    product = Product.objects.get(sku=sku)
    # Read after the stock: whoever sees the empty shelf then sees the order that emptied it, too.
    if order := Order.objects.filter(idempotency_key=key).first():
        return order
    if product.quantity < 1:
        # An earlier try with this key may have ended between the charge and the order.
        payment.refund(key)
        raise SoldOut(sku)
    payment.charge(key, sku=sku, buyer=buyer, hold=hold)
    product.quantity -= 1
    with transaction.atomic():  # a worker killed here leaves both writes or none
        product.save(update_fields=["quantity"])
        order = Order.objects.create(product=product, buyer=buyer, idempotency_key=key)
        if hold is not None:
            hold.check()  # rolls both back
    return order


STRATEGIES: dict[str, Strategy] = {
    "naive": naive,
    "conditional": conditional,
    "zk": zk,
    "zk_fenced": till.sell,
    # Another alias, and nothing else. Locks of two aliases do not exclude each other, so a product
    # needs one of them for all its writers. The shop's other writers (`till`) use ZooKeeper.
    "redis": partial(zk, using="redis"),
    "postgresql": partial(zk, using="postgresql"),
}
LOCKED = {
    "zk": "default",
    "zk_fenced": "default",
    "redis": "redis",
    "postgresql": "postgresql",
}
"""Those that hold the lock `stock:<sku>`, and must sell exactly what there is; with its alias."""


def buy(product: Product, *, buyer: str, key: UUID) -> Order:
    """Sell one piece with the product's own strategy. The same key gives the same order again."""
    strategy = STRATEGIES[product.strategy]
    try:
        return strategy(product.sku, buyer=buyer, key=key)
    except IntegrityError:
        # A twin request with the same key wrote its order first; ours was rolled back: look again.
        if not Order.objects.filter(idempotency_key=key).exists():
            raise
        return strategy(product.sku, buyer=buyer, key=key)
