"""Defines the app's own Celery tasks. ``autodiscover_tasks`` finds them by this file's name."""

from __future__ import annotations

from celery import shared_task

from .lease import persistent


@shared_task(name="distlock.sweep")
def sweep(using: str = "default") -> int:
    """Remove the leases that have expired, and return their number. Run it from celery beat.

    :param using: the alias in ``DISTLOCK``
    """
    return persistent.sweep(using).removed
