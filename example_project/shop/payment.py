"""A stub of a payment provider: slow, beyond the shop's transactions, idempotent as real ones.

Like them it charges in two steps: `authorize` asks the bank and sets the money aside, which takes
time and no money; `capture` takes it. `charge` is both at once.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from uuid import UUID

from django.conf import settings

from example_project.shop.models import Payment

if TYPE_CHECKING:
    from distlock import Hold

DECLINED_BUYER = "declined"
"""A buyer of this name never has the money, like the test cards of real providers."""


class PaymentDeclined(Exception):
    """The provider refused the charge. Nothing was paid; the piece must go back on the shelf."""


def charge(key: UUID, *, sku: str, buyer: str, hold: Hold | None = None) -> None:
    """Charge the buyer once for this key, however often it is asked. Takes `PAYMENT_SECONDS`.

    With a hold, no money is taken under a lock that is known to be lost: raises `LockLost`.
    Raises `PaymentDeclined` for the buyer called `declined`.
    """
    authorize(key, sku=sku, buyer=buyer)
    if hold is not None:
        hold.check()
    capture(key)


def authorize(key: UUID, *, sku: str, buyer: str) -> None:
    """Set the money aside, once for this key. Takes `PAYMENT_SECONDS`; nothing is paid.

    Raises `PaymentDeclined` for the buyer called `declined`.
    """
    payment, created = Payment.objects.get_or_create(
        idempotency_key=key, defaults={"sku": sku, "buyer": buyer, "worker": os.getpid()}
    )
    if payment.status in {Payment.Status.AUTHORIZED, Payment.Status.CHARGED}:
        return
    this = Payment.objects.filter(idempotency_key=key)
    if not created:
        this.update(status=Payment.Status.PENDING, worker=os.getpid())
    time.sleep(settings.PAYMENT_SECONDS)
    if buyer == DECLINED_BUYER:
        this.update(status=Payment.Status.DECLINED)
        raise PaymentDeclined(f"{buyer}'s payment was declined; nothing was charged")
    # Only a pending one: a twin request with the same key may have gone further meanwhile.
    this.filter(status=Payment.Status.PENDING).update(status=Payment.Status.AUTHORIZED)


def capture(key: UUID) -> None:
    """Take the money that was set aside for this key; once, however often it is asked."""
    Payment.objects.filter(idempotency_key=key, status=Payment.Status.AUTHORIZED).update(
        status=Payment.Status.CHARGED
    )


def refund(key: UUID) -> None:
    """Give the money back if this key was charged, let it go if it was set aside, or do nothing."""
    payment = Payment.objects.filter(idempotency_key=key)
    payment.filter(status=Payment.Status.CHARGED).update(status=Payment.Status.REFUNDED)
    payment.filter(status=Payment.Status.AUTHORIZED).update(status=Payment.Status.VOIDED)
