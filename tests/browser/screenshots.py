"""`make screenshots`: the pictures of the admin page in the docs, of a busy shop."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import django
from django.core.management import call_command

from example_project.shop.runner import WebServer, backing, environment
from tests.browser.chromium import Chromium, Tab
from tests.browser.site import LIST, detail
from tests.kit.helpers import ROOT, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = ROOT / "docs" / "images"
SETTINGS = "tests.browser.staged"
CUSTOMERS = 10
WIDTH = 1280
SCHEMES = ("light", "dark")
#: Four wait for a product, on the list and on its page.
IN_A_RUSH = """
(document.querySelector("tr[data-state=holds]") &&
    document.querySelectorAll("tr[data-state=waits]").length >= 4) ||
[...document.querySelectorAll('tr[data-key^="stock:"]')].some((row) => row.dataset.waiting >= 4)
"""
#: The history of a lock has a bar for each ten seconds.
HISTORY_SECONDS = 75


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    os.environ.pop("DISTLOCK_HOSTS", None)
    os.environ.pop("DATABASE_URL", None)
    django.setup()
    # Django's models can be imported from here on.
    from example_project.shop.management.commands import fill_shelves  # noqa: PLC0415
    from example_project.shop.tangle import tangled  # noqa: PLC0415
    from example_project.shop.traffic import Traffic  # noqa: PLC0415

    with ExitStack() as stack:
        stack.enter_context(backing(temporary_database=True, zookeeper=True))
        call_command("fill_shelves")
        for name, value in (("PAYMENT_SECONDS", "0.8"), ("LOCK_SECONDS", "15")):
            stack.enter_context(environment(name, value))
        server = stack.enter_context(WebServer(processes=1, threads=CUSTOMERS + 8))
        stack.enter_context(Traffic(server.port, customers=CUSTOMERS))
        chromium = stack.enter_context(Chromium())
        tabs: dict[str, Tab] = {}
        for scheme in SCHEMES:
            tabs[scheme] = tab = chromium.open(
                f"http://127.0.0.1:{server.port}", color_scheme=scheme
            )
            tab(lambda page: log_in(page, fill_shelves.USER, fill_shelves.PASSWORD))
        one = tabs["light"]
        one(lambda page: page.wait_for_timeout(HISTORY_SECONDS * 1000))
        take(tabs, "list", LIST, IN_A_RUSH, height=800)
        take(tabs, "detail", detail("stock:camera"), IN_A_RUSH, height=720)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(tangled(Path(folder)))
        stuck = "document.querySelector('.distlock-deadlock, .distlock-waitgraph') !== null"
        take(tabs, "deadlock", detail("account:bob"), stuck, height=1000)


def log_in(page: Page, user: str, password: str) -> None:
    page.goto(f"/admin/login/?next={LIST}")
    # What other apps are there is of no interest here.
    page.evaluate("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
    page.fill("#id_username", user)
    page.fill("#id_password", password)
    page.press("#id_password", "Enter")
    page.wait_for_selector("#distlock-live")


def take(tabs: dict[str, Tab], name: str, path: str, ready: str, *, height: int) -> None:
    """Take a picture in each theme of a moment when there is something to see.

    :param ready: says so, in JavaScript
    """
    for tab in tabs.values():
        tab(lambda page: page.set_viewport_size({"width": WIDTH, "height": height}))
        tab.go(path)
    eventually(lambda: all(tab(lambda page: page.evaluate(ready)) for tab in tabs.values()), 120)
    for scheme, tab in tabs.items():
        picture = tab(lambda page: page.screenshot())
        (IMAGES / f"admin-{name}-{scheme}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
