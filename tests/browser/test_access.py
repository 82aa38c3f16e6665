"""For everybody: axe-core's findings, both themes, narrow screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.axe import serious_findings
from tests.browser.site import LIST, detail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.browser.chromium import Tab
    from tests.browser.crew import Crew
    from tests.browser.site import Site

OVERFLOW = """
() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const within = (one) => one.closest(".results, .distlock-waitgraph");
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
#: What is seen of the way to a page, and of what stands beside a list.
BREADCRUMBS = """
() => {
    const style = getComputedStyle(document.querySelector(".breadcrumbs"));
    const link = getComputedStyle(document.querySelector(".breadcrumbs a"));
    return [style.backgroundColor, style.color, style.padding, link.color, link.fontSize];
}
"""
FILTER = """
() => {
    const box = (id) => document.getElementById(id).getBoundingClientRect();
    const [list, filter] = [box("distlock-body"), box("changelist-filter")];
    return [filter.left >= list.right, filter.top >= list.bottom];
}
"""


@pytest.fixture
def pages(crew: Crew, key: str) -> Callable[[Tab], Iterator[str]]:
    """Visits each kind of page, with something to see on it."""
    key = f"{key}:{'long' * 30}"
    crew.hold(key, "POST /products/camera/buy/")
    crew.wait(key, "a job")

    def visit(tab: Tab) -> Iterator[str]:
        tab.go(LIST)
        tab.sees("tr[data-key]")
        yield "list"
        tab.go(f"{LIST}?q=nobody-has-this")
        tab.sees("#distlock-nothing")
        yield "empty list"
        tab.go(detail(key))
        tab.sees("tr[data-node]", count=2)
        yield "detail"
        for action in ("revoke", "break"):
            tab.go(detail(key))
            tab.click(f"a[data-action={action}]")
            tab.sees("#distlock-confirm")
            yield action

    return visit


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_finding(
    site: Site,
    operator: Callable[..., Tab],
    pages: Callable[[Tab], Iterator[str]],
    scheme: str,
) -> None:
    tab = operator(site, color_scheme=scheme)
    for page in pages(tab):
        assert (page, tab(serious_findings)) == (page, [])
        assert (tab(lambda page: page.evaluate(LIGHTNESS)) < 128) == (scheme == "dark")


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_sticks_out_of_the_screen(
    site: Site,
    operator: Callable[..., Tab],
    pages: Callable[[Tab], Iterator[str]],
    width: int,
) -> None:
    tab = operator(site, viewport={"width": width, "height": 800})
    for page in pages(tab):
        assert (page, tab(lambda page: page.evaluate(OVERFLOW))) == (page, [])


def test_the_way_to_a_page_looks_as_on_pages_of_django(
    site: Site, operator: Callable[..., Tab], pages: Callable[[Tab], Iterator[str]]
) -> None:
    tab = operator(site)
    tab.go("/admin/distlock/")
    djangos = tab(lambda page: page.evaluate(BREADCRUMBS))
    for page in pages(tab):
        assert (page, tab(lambda page: page.evaluate(BREADCRUMBS))) == (page, djangos)


@pytest.mark.parametrize(("width", "beside"), [(1280, True), (360, False)])
def test_the_filter_is_beside_the_list_or_below(
    site: Site, operator: Callable[..., Tab], width: int, beside: bool
) -> None:
    tab = operator(site, viewport={"width": width, "height": 800})
    tab.go(LIST)
    tab.sees("#changelist-filter")
    assert tab(lambda page: page.evaluate(FILTER)) == [beside, not beside]
