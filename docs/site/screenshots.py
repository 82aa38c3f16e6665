"""`make screenshots`: the pictures in the docs, of the shop and its admin, wide, narrow and dark.

With names of pages, `make screenshots ARGS=admin-lock`, only theirs.
"""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import django
from django.core.management import call_command
from PIL import Image

from example_project.shop.runner import WebServer, backing, environment, redis_backing
from tests.browser.chromium import Chromium, Tab
from tests.browser.site import LIST, detail
from tests.kit.helpers import ROOT, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = ROOT / "docs" / "images"
SETTINGS = "docs.site.staged"
CUSTOMERS = 10
SCHEMES = ("light", "dark")
#: The picture of the page for a busy lock.
REFUSAL = "busy-page"
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
        heights={1280: 900, 390: 1200},
    ),
    Picture(
        name="admin-lock",
        path=detail("stock:camera"),
        ready="""document.querySelector("[data-state=holds]") !== null &&
            document.querySelectorAll("[data-state=waits]").length >= 4""",
        heights={1280: 720},
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
        stack.enter_context(redis_backing())
        call_command("fill_shelves")
        remember_an_hour()
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
        if not names or REFUSAL in names:
            take_refusal(tabs)
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


def remember_an_hour() -> None:
    """Let the shop have been busy for an hour, with a rush at half time."""
    from distlock import minutes  # noqa: PLC0415 - after django.setup()

    now = int(time.time()) // 60
    waits = {"stock:<sku>": 5, "delivery:<fleet>": 6, "catalogue:<season>": 3}  # of the buckets
    minutes.write(
        {
            (now - ago, "default", template, kind, bucket): 6
            for ago in range(2, 60)
            for template, usual in sorted(waits.items())
            for kind, bucket in (("hold", 6), ("wait", usual + max(0, 5 - abs(ago - 30) // 3)))
        },
        "default",
    )


def take_refusal(tabs: dict[str, Tab]) -> None:
    """Write the pictures of the page that a browser gets for a busy lock."""
    # After django.setup().
    from django.test import RequestFactory, override_settings  # noqa: PLC0415

    from distlock import LockBusy  # noqa: PLC0415
    from distlock.responses import refusal  # noqa: PLC0415

    request = RequestFactory().get("/buy/lamp", headers={"accept": "text/html"})
    ours = {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "distlock" / "templates"],  # not the shop's
    }
    with override_settings(TEMPLATES=[ours], DEBUG=False):
        html = refusal(request, LockBusy("stock:lamp")).content.decode()
    for scheme, tab in tabs.items():
        tab.resize(560, 300)
        tab(lambda page: page.goto("about:blank"))  # the shop's content security policy
        tab(lambda page: page.set_content(html))
        taken = tab(lambda page: page.screenshot())
        (IMAGES / f"{REFUSAL}-560-{scheme}.png").write_bytes(smaller(taken))


def log_in(page: Page, user: str, password: str) -> None:
    page.goto(f"/admin/login/?next={LIST}")
    page.fill("#id_username", user)
    page.fill("#id_password", password)
    page.press("#id_password", "Enter")
    page.wait_for_selector("#distlock-live")


def take(tabs: dict[str, Tab], picture: Picture, folder: Path = IMAGES) -> None:
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
            (folder / f"{picture.name}-{width}-{scheme}.png").write_bytes(smaller(taken))


def smaller(png: bytes) -> bytes:
    """Return a picture with at most 256 colours, which has a third of the size."""
    written = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, kmeans=2).save(
        written, "PNG", optimize=True
    )
    return written.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])
