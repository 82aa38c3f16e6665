"""What the shop does beside the buyers: one task for each way to meet a busy lock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from celery import shared_task
from django.conf import settings
from django.db.models import Count
from django.utils import timezone

from distlock import zk_locked
from distlock.celery.queued_once import QueuedOnce
from example_project.shop import till
from example_project.shop.models import Order

task: Callable[..., Callable[[Callable[..., Any]], Any]] = shared_task


@task()
@zk_locked("expire-reservations", on_busy="skip", timeout=0)
def expire_reservations() -> int:
    """Put back what was reserved and not paid in time. If another run is at it, so be it."""
    too_old = timezone.now() - timedelta(seconds=settings.RESERVED_SECONDS)
    reserved = Order.objects.filter(status=Order.Status.RESERVED, created_at__lt=too_old)
    return sum(till.put_back(order) for order in reserved.select_related("product"))


@task()
@zk_locked("stock:<sku>", on_busy="retry")
def sync_warehouse(sku: str, counted: int) -> int:
    """Take over what the warehouse has counted, when no sale is under way.

    It has to be done, and the worker has better to do than to wait for a busy product.
    """
    return till.recount(sku, counted)


@task()
@zk_locked("order:<key>", on_busy="wait", timeout=30)
def fulfil_order(key: str) -> bool:
    """Ship a paid order once, and return whether this run did. A parcel is packed in no time."""
    order = Order.objects.get(idempotency_key=UUID(key))
    if order.status != Order.Status.PAID or order.shipped_at is not None:
        return False
    order.shipped_at = timezone.now()
    order.save(update_fields=["shipped_at"])
    return True


@task(base=QueuedOnce, once_ttl=timedelta(hours=2))
@zk_locked("nightly-report")
def nightly_report() -> dict[str, int]:
    """Count the pieces sold yesterday by SKU. However often it is asked for, it is queued once."""
    yesterday = timezone.localdate() - timedelta(days=1)
    orders = Order.objects.filter(status=Order.Status.PAID, created_at__date=yesterday)
    return dict(orders.values_list("product__sku").annotate(Count("pk")).order_by())
