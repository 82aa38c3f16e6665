"""A crowd of buyers, over HTTP: each opens the page, and at the bell all press the button.

A buyer who is told to come back does so after `Retry-After`; one whose connection breaks asks
again. Both use the key of their page, so nobody buys or pays twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode

if TYPE_CHECKING:
    from typing_extensions import Self

Result = Literal["bought", "sold out", "gave up", "error"]

ANSWER_SECONDS = 30
RECONNECT_SECONDS = 0.2


@dataclass(kw_only=True)
class Visit:
    """How one buyer fared, from the bell to the last answer."""

    result: Result = "gave up"
    waited: float = 0.0
    refused: int = 0
    unavailable: int = 0
    stale: int = 0
    lost: int = 0
    reconnected: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Page:
    """What a buyer takes from the product page."""

    buy: str
    cookie: str
    idempotency_key: str


class Shop:
    """The page of the product at `path`, and its button."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path

    def open_page(self) -> Page:
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)) as shop:
            shop.request("GET", self._path, headers={"Accept": "application/json"})
            response = shop.getresponse()
            body = response.read()
            if response.status != 200:
                raise HTTPException(f"{self._path} answered {response.status}")
            cookie = response.getheader("Set-Cookie", "").partition(";")[0]
            page = json.loads(body)
            return Page(page["buy"], cookie, page["idempotency_key"])

    def press_button(self, page: Page, buyer: str, visit: Visit) -> float | None:
        """Ask once. Return the seconds after which to ask again; None: the answer is final."""
        try:
            with closing(HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)) as shop:
                shop.request(
                    "POST",
                    page.buy,
                    body=urlencode({"buyer": buyer, "idempotency_key": page.idempotency_key}),
                    headers={
                        "Accept": "application/json",
                        "Connection": "close",
                        "Content-Type": "application/x-www-form-urlencoded",
                        "Cookie": page.cookie,
                        "X-CSRFToken": page.cookie.partition("=")[2],
                    },
                )
                response = shop.getresponse()
                body = response.read()
        except (OSError, HTTPException):
            visit.reconnected += 1
            return RECONNECT_SECONDS
        match response.status:
            case 200 | 201:
                visit.result = "bought"
            case 409 if response.getheader("Retry-After"):
                reason = json.loads(body)["reason"]
                visit.stale += reason == "stale"
                visit.lost += reason == "lost"
                return _retry_after(response)
            case 409:
                visit.result = "sold out"
            case 423:
                visit.refused += 1
                return _retry_after(response)
            case 503:
                visit.unavailable += 1
                return _retry_after(response)
            case status:
                visit.result = "error"
                visit.detail = f"{status} {body[:200].decode(errors='replace')}"
        return None


class Crowd:
    """`size` buyers of the product at `path`, each with `patience` seconds.

    A context manager: whoever is still there at its end goes home, however it ends. On Ctrl-C
    nobody waits for answers: the server ends next, and their connections too.
    """

    def __init__(self, port: int, path: str, *, size: int, patience: float) -> None:
        self._shop = Shop(port, path)
        self._size = size
        self._patience = patience
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="buyer")
        self._gone_home = threading.Event()
        self._bell = threading.Barrier(size, action=self._ring)
        self.started = threading.Event()
        self.finished = threading.Event()
        self.rang_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gone_home.set()
        self._bell.abort()
        self.finished.set()
        self.started.set()  # whoever waits for a bell that will not ring goes home, too
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ring(self) -> None:
        self.rang_at = time.monotonic()
        self.started.set()

    def rush(self, progress: Callable[[int], None]) -> list[Visit]:
        """Let them all in; return when the last has an answer. `progress` gets the number done."""
        visits = [
            self._pool.submit(self._visit, f"buyer-{number:03}") for number in range(self._size)
        ]
        pending: set[Future[Visit]] = set(visits)
        while pending:
            done, pending = wait(pending, timeout=0.1, return_when=FIRST_EXCEPTION)
            for visit in done:
                visit.result()
            progress(len(visits) - len(pending))
        return [visit.result() for visit in visits]

    def _visit(self, buyer: str) -> Visit:
        try:
            page = self._shop.open_page()
        except BaseException:
            self._bell.abort()
            raise
        self._bell.wait()
        visit = Visit()
        deadline = self.rang_at + self._patience
        while time.monotonic() < deadline and not self._gone_home.is_set():
            pause = self._shop.press_button(page, buyer, visit)
            if pause is None:
                break
            self._gone_home.wait(min(pause, max(0, deadline - time.monotonic())))
        visit.waited = time.monotonic() - self.rang_at
        return visit


def _retry_after(response: HTTPResponse) -> float:
    return float(response.getheader("Retry-After", "1"))
