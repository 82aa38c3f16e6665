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
        tab.click("a[data-action=break]")
        tab.sees("#distlock-confirm")
        yield "confirmation"

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
