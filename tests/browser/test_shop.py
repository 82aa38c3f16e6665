"""The shop's pages: buyers in line, with and without JavaScript, in two languages, and axe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.axe import findings
from tests.browser.chromium import Chromium, Tab
from tests.browser.crew import Crew
from tests.browser.site import Site
from tests.browser.test_access import LIGHTNESS, OVERFLOW

CAMERA, STOCK = "/products/camera/", "stock:camera"
TILL = "Another buyer is at the till. You are number"
TITLE = "h1"

pytestmark = pytest.mark.deep


@pytest.fixture
def buyer(chromium: Chromium, site: Site) -> Iterator[Callable[..., Tab]]:
    """Returns a new window on the shop. Each pays, and gets a piece, in the end."""
    windows: list[Tab] = []

    def enter(**options: Any) -> Tab:
        windows.append(tab := chromium.open(site.address, **options))
        return tab

    yield enter
    for tab in windows:
        tab.close()
    assert [tab.complaints + tab.dialogs for tab in windows] == [[] for _ in windows]


def lines_up(tab: Tab) -> None:
    tab.go(CAMERA)
    tab.click("#buy button")


def stock_at(tab: Tab) -> int:
    tab.go(CAMERA)
    found = re.search(r"\d+", tab.text("#stock"))
    return int(found[0]) if found else 0


def test_two_buyers_see_their_places_and_then_the_result(
    buyer: Callable[..., Tab], crew: Crew
) -> None:
    first, second = buyer(), buyer(reduced_motion="reduce")
    before = stock_at(first)
    holder = crew.hold(STOCK)
    lines_up(first)
    first.sees("#message", text=f"{TILL} 1 in line.")
    lines_up(second)
    second.sees("#message", text=f"{TILL} 2 in line.")
    second.sees("progress")
    holder.leave()
    for tab in (first, second):
        tab.sees("#message.good", text="is yours.")
        tab.sees_no("progress")
    second.click("#message a")
    second.sees(TITLE, text="It is yours")
    assert stock_at(first) == before - 2


def check(tab: Tab, scheme: str) -> None:
    assert tab(findings) == []
    assert tab(lambda page: page.evaluate(OVERFLOW)) == []
    assert (tab(lambda page: page.evaluate(LIGHTNESS)) < 128) == (scheme == "dark")


def test_a_line_that_is_too_long_has_a_page_for_the_same_purchase(
    chromium: Chromium, site: Site, crew: Crew
) -> None:
    """In four windows at once, since each waits for `LOCK_SECONDS`."""
    looks = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 390)]
    holder = crew.hold(STOCK)
    tabs = {
        (scheme, width): chromium.open(
            site.address, color_scheme=scheme, viewport={"width": width, "height": 800}
        )
        for scheme, width in looks
    }
    for tab in tabs.values():
        tab.go(CAMERA)
        tab(lambda page: page.evaluate("document.getElementById('buy').submit()"))
    for (scheme, _), tab in tabs.items():
        tab.sees(TITLE, text="Another buyer is at the till")
        check(tab, scheme)
    holder.leave()
    for tab in tabs.values():
        tab.click("article button")
        tab.sees(TITLE, text="It is yours")
        tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(buyer: Callable[..., Tab], crew: Crew, scheme: str, width: int) -> None:
    tab = buyer(color_scheme=scheme, viewport={"width": width, "height": 800})
    tab.go("/")
    tab.sees("a.button", text="Buy")
    check(tab, scheme)
    tab.go(CAMERA)
    check(tab, scheme)
    holder = crew.hold(STOCK)
    tab.click("#buy button")
    tab.sees("progress")
    check(tab, scheme)
    holder.leave()
    tab.sees("#message.good")
    check(tab, scheme)
    tab.click("#message a")
    tab.sees(TITLE, text="It is yours")
    check(tab, scheme)
