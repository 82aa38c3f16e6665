"""A site with metrics for gunicorn: ``/stock/7/`` is locked for a moment, ``/hold/`` for good.

``METRICS_SITE`` is the JSON of ``DISTLOCK``.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from distlock import zk_lock, zk_locked

if TYPE_CHECKING:
    from collections.abc import Callable

settings.configure(
    SECRET_KEY="metrics site",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["distlock", "distlock.contrib.prometheus.PrometheusConfig"],
    DISTLOCK=json.loads(os.environ["METRICS_SITE"]),
)


@zk_locked("stock:<sku>", timeout=30)
def stock(request: HttpRequest, sku: int) -> JsonResponse:
    return JsonResponse({"pid": os.getpid(), "sku": sku, "method": request.method})


def hold(request: HttpRequest) -> JsonResponse:
    """Take a lock that this process keeps; again, it waits for that in vain."""
    threading.Thread(target=zk_lock(f"kept:{os.getpid()}").acquire, daemon=True).start()
    return JsonResponse({"pid": os.getpid(), "method": request.method})


def metrics(request: HttpRequest) -> JsonResponse:
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return JsonResponse({"text": generate_latest(registry).decode(), "method": request.method})


views: dict[str, Callable[..., Any]] = {"stock/<int:sku>/": stock, "hold/": hold}
urlpatterns = [path("metrics/", metrics), *(path(url, view) for url, view in views.items())]
application = get_wsgi_application()

if os.environ.get("METRICS_SITE_HOLDS"):  # in the master, with --preload
    zk_lock("master's").acquire()
