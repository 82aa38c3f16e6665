"""A narrow screen: cards instead of tables, filters on demand, a drawing that scrolls by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.chromium import PATIENCE
from tests.browser.site import LIST, detail
from tests.browser.test_access import OVERFLOW
from tests.browser.test_deadlocks import circle
from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.browser.chromium import Tab
    from tests.browser.crew import Crew
    from tests.browser.site import Site

pytestmark = pytest.mark.deep

NARROW = {"width": 390, "height": 800}
#: The cells of all tables without the title of their column, or outside of the screen.
BAD_CELLS = """
() => [...document.querySelectorAll("#distlock-live table")].flatMap((table) => {
    const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    return [...table.tBodies[0].rows].flatMap((row) => [...row.cells].filter((cell, place) => {
        if (!cell.textContent.trim()) return false;
        const box = cell.getBoundingClientRect();
        const label = getComputedStyle(cell, "::before");
        return !titles[place].startsWith(JSON.parse(label.content)) || label.float !== "left" ||
            box.left < 0 || box.right > innerWidth || cell.scrollWidth > cell.clientWidth;
    }).map((cell) => cell.outerHTML));
})
"""
#: The links and buttons that a finger does not reach without scrolling aside.
OUT_OF_REACH = """
() => [...document.querySelectorAll("#distlock-live :is(a, button, summary)")]
    .filter((one) => one.checkVisibility() && !one.closest(".distlock-unseen"))
    .filter((one) => {
        const box = one.getBoundingClientRect();
        return box.left < 0 || box.right > innerWidth;
    }).map((one) => one.outerHTML)
"""
FOCUS = "document.activeElement.matches('.distlock-deadlock-drawing[role=region][aria-label]')"
SCROLLED = "document.activeElement.scrollLeft"
FILTER = "#distlock-filter-contended"


def press_tab_until(page: Page, condition: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return
    raise AssertionError(f"Tab never comes to {condition}")


@pytest.mark.parametrize("width", [320, 390, 1024])
def test_each_cell_is_a_labelled_line(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str, width: int
) -> None:
    key = f"{key}:{'long' * 30}"
    crew.hold(key, "a job with a long name, " * 5)
    crew.wait(key)
    tab = operator(site, viewport={"width": width, "height": 800})
    for path, rows in ((f"{LIST}?q={key}", "tr[data-key]"), (detail(key), "tr[data-node]")):
        tab.go(path)
        tab.sees(rows)
        assert tab(lambda page: page.evaluate(BAD_CELLS)) == []
        assert tab(lambda page: page.evaluate(OUT_OF_REACH)) == []
    for action in ("revoke", "break"):
        tab.sees(f"tr[data-state=holds] [data-action={action}]")


def test_cards_are_sorted(site: Site, operator: Callable[..., Tab], crew: Crew, key: str) -> None:
    for letter in "ab":
        crew.hold(f"{key}:{letter}")
    tab = operator(site, viewport=NARROW)
    tab.go(f"{LIST}?q={key}")
    crew.wait(f"{key}:b")
    for column, first in (("waiting", "b"), ("key", "a")):
        tab.click(f"#distlock-sort-{column}")
        tab.sees("tr[data-key]", text=f"{key}:{first}")


@pytest.mark.parametrize("scripts", [True, False])
def test_filters_open_on_demand(site: Site, operator: Callable[..., Tab], scripts: bool) -> None:
    tab = operator(site, viewport=NARROW, java_script_enabled=scripts)
    tab.go(LIST)
    tab.sees_no(FILTER)

    def open_filters(page: Page) -> None:
        page.focus("#searchbar")
        for _ in range(2):  # past the button
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")

    tab(open_filters)
    tab.click(FILTER)
    tab.sees("nav summary", text="Filter · With waiters")
    tab.sees_no(FILTER)


def test_filters_are_open_on_a_wide_screen(site: Site, operator: Callable[..., Tab]) -> None:
    tab = operator(site, java_script_enabled=False)
    tab.go(LIST)
    tab.sees_no("nav > details > summary")
    tab.click(FILTER)
    tab.sees("li.selected", text="With waiters")


def test_the_drawing_scrolls_by_itself(site: Site, operator: Callable[..., Tab], key: str) -> None:
    tab = operator(site, viewport=NARROW)
    with circle(site, key, after=None) as (keys, _):
        tab.go(detail(keys[0]))
        tab.sees(".distlock-deadlock-drawing svg")

        tab(lambda page: press_tab_until(page, FOCUS))
        tab(lambda page: page.keyboard.press("ArrowRight"))
        eventually(lambda: tab(lambda page: page.evaluate(SCROLLED)) > 0, PATIENCE)
        assert tab(lambda page: page.evaluate(OVERFLOW)) == []
