"""`make screenshots`: the pictures in the docs, of the shop and its admin, wide, narrow and dark.

With names of pages, `make screenshots ARGS=admin-lock`, only theirs.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import django
from django.core.management import call_command
from PIL import Image

from example_project.shop.runner import WebServer, backing, environment
from tests.browser.chromium import Chromium, Tab
from tests.browser.site import LIST, detail
from tests.kit.helpers import ROOT, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = ROOT / "docs" / "images"
SETTINGS = "docs.site.staged"
CUSTOMERS = 10
SCHEMES = ("light", "dark")
#: How long somebody has looked at the page before, so that a history has something to show.
HISTORY_SECONDS = 40


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A page at a moment when there is something to see.

    :ivar name: of the files: ``name-width-scheme.png``
    :ivar path: the address
    :ivar ready: tells, in JavaScript, whether the moment has come
    :ivar heights: the height of the picture by its width
    """

    name: str
    path: str
    ready: str
    heights: dict[int, int]


#: Of the shop, with seven before the buyer. (The switch of the language needs a Chinese font.)
SHOP = [
    Picture(
        name="shop-home",
        path="/",
        ready="document.querySelector('a.button') !== null",
        heights={1280: 580},
    ),
    Picture(
        name="shop-line",
        path="/products/camera/",
        ready="""document.querySelector("#buy button:enabled")?.click(),
            !document.getElementById("line").hidden""",
        heights={1280: 735},
    ),
]
#: Of the busy shop: four wait for a product, on the list and on its page.
BUSY = [
    Picture(
        name="admin-list",
        path=LIST,
        ready="""[...document.querySelectorAll('tr[data-key^="stock:"]')]
            .some((row) => row.dataset.waiting >= 4) &&
            !document.querySelector(".distlock-note")""",
        heights={1280: 800, 390: 844},
    ),
    Picture(
        name="admin-lock",
        path=detail("stock:camera"),
        ready="""document.querySelector("tr[data-state=holds]") !== null &&
            document.querySelectorAll("tr[data-state=waits]").length >= 4""",
        heights={1280: 1000},
    ),
]


def main(names: list[str]) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    os.environ.pop("DISTLOCK_HOSTS", None)
    os.environ.pop("DATABASE_URL", None)
    django.setup()
    # Django's models can be imported from here on.
    from example_project.shop.management.commands import fill_shelves  # noqa: PLC0415
    from example_project.shop.traffic import Traffic  # noqa: PLC0415
    from tests.browser.crew import Crew  # noqa: PLC0415

    shop, busy = (
        [one for one in pictures if not names or one.name in names] for pictures in (SHOP, BUSY)
    )
    with ExitStack() as stack:
        stack.enter_context(backing(temporary_database=True, zookeeper=True))
        call_command("fill_shelves")
        for name, value in (("PAYMENT_SECONDS", "0.8"), ("LOCK_SECONDS", "15")):
            stack.enter_context(environment(name, value))
        server = stack.enter_context(WebServer(processes=1, threads=CUSTOMERS + 8))
        chromium = stack.enter_context(Chromium())
        tabs: dict[str, Tab] = {}
        for scheme in SCHEMES:
            tabs[scheme] = tab = chromium.open(
                f"http://127.0.0.1:{server.port}", color_scheme=scheme
            )
            tab(lambda page: log_in(page, fill_shelves.USER, fill_shelves.PASSWORD))
        if shop:
            with Crew() as crew:
                crew.hold("stock:camera")
                for _ in range(6):
                    crew.wait("stock:camera")
                for picture in shop:
                    take(tabs, picture)
        if not busy:
            return
        stack.enter_context(Traffic(server.port, customers=CUSTOMERS))
        tabs["light"](lambda page: page.wait_for_timeout(HISTORY_SECONDS * 1000))
        for picture in busy:
            take(tabs, picture)


def log_in(page: Page, user: str, password: str) -> None:
    page.goto(f"/admin/login/?next={LIST}")
    # The other apps are of no interest here.
    page.evaluate("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
    page.fill("#id_username", user)
    page.fill("#id_password", password)
    page.press("#id_password", "Enter")
    page.wait_for_selector("#distlock-live")


def take(tabs: dict[str, Tab], picture: Picture) -> None:
    """Write the pictures of a page in each width and theme."""
    for width, height in picture.heights.items():
        for tab in tabs.values():
            tab.resize(width, height)
            tab.go(picture.path)
        eventually(
            lambda: all(tab(lambda page: page.evaluate(picture.ready)) for tab in tabs.values()),
            120,
            f"{picture.name} has something to show",
        )
        for scheme, tab in tabs.items():
            taken = tab(lambda page: page.screenshot())
            (IMAGES / f"{picture.name}-{width}-{scheme}.png").write_bytes(smaller(taken))


def smaller(png: bytes) -> bytes:
    """Return a picture with at most 256 colours, which has a third of the size."""
    written = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, kmeans=2).save(
        written, "PNG", optimize=True
    )
    return written.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])
