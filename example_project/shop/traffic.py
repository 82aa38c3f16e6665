"""What keeps the demo shop busy: customers who come in waves, and staff at work under other locks.

All of it are threads of this process, so it ends with it. The customers buy over HTTP, and hold
their locks in the server's processes; the staff holds its own here.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from http.client import HTTPException
from typing import TYPE_CHECKING

from django.db import connection
from django.utils import timezone

from distlock import DistlockError, zk_lease, zk_lock, zk_rwlock, zk_semaphore
from distlock.owner.owner import label
from example_project.shop import till
from example_project.shop.buyers import Shop, Visit
from example_project.shop.models import Order, Payment, Product
from example_project.shop.strategies import LOCKED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

WAVE_SECONDS = 12.0
"""How often all customers come back, each time for another product."""
RUSH_SECONDS = 3.0
"""Within which time of a wave they press the button."""
PATIENCE_SECONDS = 30.0
PAYMENT_SECONDS = 0.4
"""With the demo's twelve customers a queue drains in about five seconds: slow enough to watch."""
LOCK_SECONDS = 8.0
PIECES = 25
END_SECONDS = 1.0


class Traffic:
    """`customers` who buy what is sold under a lock, and the shop's staff, until the block ends.

    Whatever fails meanwhile, because ZooKeeper is away or because an operator broke somebody's
    lock, is tried again a moment later.
    """

    def __init__(self, port: int, *, customers: int) -> None:
        self._port = port
        self._skus = list(
            Product.objects.filter(strategy__in=LOCKED)
            .values_list("sku", flat=True)
            .order_by("sku")
        )
        self._closed = threading.Event()
        self._threads = [
            *self._crew("customer", self._buy, customers),
            *self._crew("report", self._write_report, 2),
            *self._crew("visitor", self._read_catalogue, 3),
            *self._crew("editor", self._edit_catalogue, 1),
            *self._crew("courier", self._deliver, 4),
            *self._crew("import", self._import_prices, 1),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        deadline = time.monotonic() + END_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def _crew(
        self, name: str, work: Callable[[str], None], size: int
    ) -> Iterable[threading.Thread]:
        for number in range(1, size + 1):
            yield threading.Thread(
                target=self._keep_at,
                args=(work, f"{name}-{number}"),
                name=f"{name}-{number}",
                daemon=True,
            )

    def _keep_at(self, work: Callable[[str], None], name: str) -> None:
        try:
            while not self._closed.is_set():
                with suppress(DistlockError, OSError, HTTPException):
                    work(name)
                self._pause(0.2, 1)
        finally:
            connection.close()  # this thread's own

    def _pause(self, least: float, most: float) -> None:
        self._closed.wait(random.uniform(least, most))  # noqa: S311 - nobody has to guess it

    # --- customers -------------------------------------------------------------------------------

    def _buy(self, name: str) -> None:
        wave, done = divmod(time.monotonic(), WAVE_SECONDS)
        self._closed.wait(WAVE_SECONDS - done)
        self._pause(0, RUSH_SECONDS)
        sku = self._skus[int(wave) % len(self._skus)]
        shop = Shop(self._port, f"/products/{sku}/")
        page = shop.open_page()
        visit = Visit()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not self._closed.is_set():
            pause = shop.press_button(page, name, visit)
            if pause is None:
                break
            self._closed.wait(pause)
        if visit.result == "sold out":
            restock(sku)

    # --- staff: one of each kind of lock ---------------------------------------------------------

    def _write_report(self, _: str) -> None:
        """Hold for long; leave when asked to."""
        asked = threading.Event()
        with (
            label("yearly report"),
            zk_lock("report:<of>", of="inventory", timeout=None, on_revoke=lambda _: asked.set()),
        ):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not asked.wait(0.5) and not self._closed.is_set():
                pass
        self._pause(5, 10)

    def _read_catalogue(self, _: str) -> None:
        with label("GET /catalogue/"), zk_rwlock("catalogue:<season>", season="spring").read:
            self._pause(1, 4)

    def _edit_catalogue(self, _: str) -> None:
        with label("POST /catalogue/"), zk_rwlock("catalogue:<season>", season="spring").write:
            self._pause(2, 3)
        self._pause(4, 10)

    def _deliver(self, _: str) -> None:
        with label("delivery"), zk_semaphore("delivery:<fleet>", 2, timeout=None, fleet="vans"):
            self._pause(2, 6)

    def _import_prices(self, _: str) -> None:
        lease = zk_lease("import:prices", ttl=60, owner="price-import")
        lease.acquire()
        for _step in range(3):
            self._pause(10, 10)
            lease.renew()
        lease.release()
        self._pause(5, 5)


def restock(sku: str) -> None:
    """Put new pieces on an empty shelf, and forget the orders and payments of a while ago."""
    with label("restock"):
        till.restock(sku, PIECES)
    old = {
        "buyer__startswith": "customer-",
        "created_at__lt": timezone.now() - timedelta(minutes=10),
    }
    Order.objects.filter(product__sku=sku, **old).delete()
    Payment.objects.filter(sku=sku, **old).delete()
