"""Defines the app's own Celery tasks. ``autodiscover_tasks`` finds them by this file's name."""

from __future__ import annotations

from celery import shared_task

from .lease import cool_downs, persistent


@shared_task(name="distlock.sweep")
def sweep(using: str = "default") -> int:
    """Remove the leases that have expired, and return their number. Run it from celery beat.

    It also removes what ``hold_at_least=`` has left.

    :param using: the alias in ``DISTLOCK``
    """
    cool_downs.sweep(using)
    return persistent.sweep(using).removed
