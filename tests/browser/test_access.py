"""For everybody: axe-core finds nothing in any state, wide or narrow, light or dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page

from distlock import process, zk_semaphore
from distlock_chaos.ports import free_ports
from docs.site import screenshots
from tests.browser.axe import findings
from tests.browser.chromium import Tab
from tests.browser.crew import Crew
from tests.browser.site import LIST, Site, SiteAt, detail
from tests.browser.test_actions import circle

pytestmark = pytest.mark.deep

OVERFLOW = """
() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const within = (one) => one.closest(".results, .distlock-deadlock-drawing");
    return [...document.body.querySelectorAll("*")]
        .filter((one) => !(within(one) && within(one) !== one))  // these scroll by themselves
        .filter((one) => one.getBoundingClientRect().right > width + 1)
        .map((one) => one.tagName + "." + one.className + "#" + one.id)
        .concat("the page is too wide");
}
"""
#: How light the page is, 0 to 255.
LIGHTNESS = """
() => {
    const colour = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
    return (colour[0] + colour[1] + colour[2]) / 3;
}
"""
#: Whatever of ours is cut off, squeezed or sticks out, with Django's sidebar shown or not.
CUT = """
(sidebar) => {
    document.getElementById("main").classList.toggle("shifted", sidebar);
    const ours = document.querySelector("#distlock-live, .distlock-confirm, .distlock-events");
    const { left, right } = ours.getBoundingClientRect();
    return [...ours.querySelectorAll("*")]
        .filter((one) => !one.closest("svg, .distlock-unseen") && one.checkVisibility())
        .filter((one) => {
            const box = one.getBoundingClientRect();
            const names = one.matches("tbody .distlock-key, :is(tbody, summary) .distlock-who");
            return (names && box.width < 100) || box.left < left - 1 ||
                box.right > Math.min(right + 1, innerWidth) ||
                (one.clientWidth && one.scrollWidth > one.clientWidth + 1);
        })
        .map((one) => one.outerHTML.slice(0, 120))
        .concat(document.documentElement.scrollWidth > innerWidth ? ["the page"] : []);
}
"""
WIDTHS = (320, 390, 768, 1025, 1280, 1366, 1920)


class Looks:
    """One page in four windows: light and dark, wide and narrow."""

    def __init__(self, operator: Callable[..., Tab], site: Site) -> None:
        self.tabs = {
            (scheme, width): operator(
                site, color_scheme=scheme, viewport={"width": width, "height": 800}
            )
            for scheme in ("light", "dark")
            for width in (1280, 390)
        }

    def each(self, act: Callable[[Tab], object]) -> None:
        for tab in self.tabs.values():
            act(tab)

    def check(self, state: str) -> None:
        """Assert that everybody can use the page in this state."""
        for look, tab in self.tabs.items():
            assert (state, look, tab(findings)) == (state, look, [])
            assert (state, look, tab(lambda page: page.evaluate(OVERFLOW))) == (state, look, [])
            assert (tab(lambda page: page.evaluate(LIGHTNESS)) < 128) == (look[0] == "dark")


@pytest.fixture
def pages(crew: Crew, key: str) -> Iterator[Callable[[Tab], Iterator[str]]]:
    """Visits each kind of page, with something to see on it."""
    limited = f"{key}:limited"
    key = f"{key}:{'long' * 30}"
    crew.hold(key, "POST /products/camera/buy/")
    crew.wait(key, "a job")

    def visit(tab: Tab) -> Iterator[str]:
        tab.go(LIST)
        tab.sees("tr[data-key]")
        yield "list"
        tab.go(f"{LIST}?q=nobody-has-this")
        tab.sees("#distlock-nothing")
        yield "nothing found"
        tab.go(detail(key))
        tab.sees("[data-node]", count=2)
        yield "detail"
        for action in ("revoke", "break"):
            tab.go(detail(key))
            tab.click(f"[data-state=holds] a[data-action={action}]")
            tab.sees("#distlock-confirm")
            yield action
        tab.go(detail(limited))
        tab.click("#distlock-limit")
        tab.sees("#distlock-confirm", text="New limit")
        yield "limit"
        tab.go(f"{LIST}?q={quote(f'{process.this.host}:{process.this.pid}')}")
        tab.click("#distlock-ask-all")
        tab.sees("#distlock-confirm")
        yield "ask all"
        tab.go("/admin/distlock/lockevent/")
        tab.sees("h1")
        yield "history"

    semaphore = zk_semaphore(limited, 3)
    semaphore.limit = 2
    yield visit
    del semaphore.limit


def test_each_page(
    site: Site, operator: Callable[..., Tab], pages: Callable[[Tab], Iterator[str]]
) -> None:
    looks = Looks(operator, site)
    for states in zip(*map(pages, looks.tabs.values()), strict=True):
        looks.check(states[0])


def test_nothing_is_cut_off_at_any_width_beside_djangos_sidebar(
    site: Site, operator: Callable[..., Tab], pages: Callable[[Tab], Iterator[str]]
) -> None:
    tab = operator(site)
    for state in pages(tab):
        if state == "detail":
            tab.click("[data-state=waits] summary")
        for width in WIDTHS:
            tab.resize(width, 800)
            for sidebar in (True, False):
                cut = tab(partial(Page.evaluate, expression=CUT, arg=sidebar))
                assert (state, width, sidebar, cut) == (state, width, sidebar, [])


@pytest.mark.parametrize("name", [picture.name for picture in screenshots.BUSY])
def test_the_pictures_of_the_docs_show_whole_pages_beside_djangos_sidebar(
    site: Site, operator: Callable[..., Tab], crew: Crew, tmp_path: Path, name: str
) -> None:
    (picture,) = [one for one in screenshots.BUSY if one.name == name]
    crew.hold("stock:camera")
    for _ in range(4):
        crew.wait("stock:camera")
    tab = operator(site)
    screenshots.take({"light": tab}, picture, tmp_path)
    names = {f"{name}-{width}-light.png" for width in picture.heights}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert names <= {path.name for path in screenshots.IMAGES.iterdir()}
    tab.resize(1280, 720)
    tab.sees("#nav-sidebar")
    assert tab(partial(Page.evaluate, expression=CUT, arg=True)) == []


def test_the_states_of_the_list(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    ended, _ = crew.hold(f"{key}:ended"), crew.hold(f"{key}:held")
    looks = Looks(operator, site)
    looks.each(lambda tab: tab.go(f"{LIST}?q={key}"))
    looks.each(lambda tab: tab(lambda page: page.hover("tr[data-key]")))
    ended.leave()
    looks.each(lambda tab: tab.sees("tr[data-state=gone]"))
    looks.check("an ended row")
    looks.each(lambda tab: tab.click("#distlock-filter-contended"))
    looks.each(lambda tab: tab.sees("#distlock-nothing"))
    looks.check("a chosen filter")


def test_the_states_of_the_page_of_a_lock(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder, _ = crew.hold(key), crew.wait(key)
    looks = Looks(operator, site)
    looks.each(lambda tab: tab.go(detail(key)))
    looks.each(lambda tab: tab.click("[data-state=waits] summary"))
    looks.check("an open waiter")
    looks.each(lambda tab: tab(lambda page: page.hover("[data-state=waits]")))
    holder.leave()
    looks.each(lambda tab: tab.sees("[data-state=gone]"))
    looks.check("an ended row")
    looks.each(lambda tab: tab.click("#distlock-pause"))
    looks.each(lambda tab: tab.sees("#distlock-live[data-state=paused]"))
    looks.check("paused")


def test_a_deadlock_and_its_end(site: Site, operator: Callable[..., Tab], key: str) -> None:
    looks = Looks(operator, site)
    with circle(site, key, after=None) as (keys, _):
        looks.each(lambda tab: tab.go(detail(keys[0])))
        looks.each(lambda tab: tab.sees("[data-cycle]"))
        looks.check("a deadlock")
        first = next(iter(looks.tabs.values()))
        first.click("[data-state=holds] a[data-action=break]")
        first.click("#distlock-confirm input[type=submit]")
        looks.each(lambda tab: tab.sees("[data-cycle]", count=0))


def test_a_server_away(operator: Callable[..., Tab], site_at: SiteAt) -> None:
    (port,) = free_ports(1)
    looks = Looks(operator, site_at(f"127.0.0.1:{port}"))
    looks.each(lambda tab: tab.go(LIST))
    looks.each(lambda tab: tab.sees("#distlock-stale"))
    looks.each(lambda tab: tab.sees("#distlock-unavailable"))
    looks.check("an outage")
