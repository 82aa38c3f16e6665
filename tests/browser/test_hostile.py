"""What others wrote into the tree is text, whatever it looks like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from distlock.keys.templates import znode_name
from tests.browser.site import LIST, NAMESPACE, detail
from tests.kit.helpers import raw_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.chromium import Tab
    from tests.browser.crew import Crew
    from tests.browser.site import Site

pytestmark = pytest.mark.deep

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"
QUOTES = "\"' onmouseover=alert(3) autofocus onfocus=alert(4) x='"
DRAWING = "<svg onload=alert(5)>"
TEMPLATE = "{{ 7|add:7 }}{% now 'Y' %}"

FOUND = """
() => ({
    images: document.querySelectorAll("img[src=x]").length,
    handlers: document.querySelectorAll("[onerror],[onload],[onfocus],[onmouseover]").length,
    scripts: [...document.scripts].filter((one) => !one.src && !one.type.includes("json")).length,
})
"""
NOTHING = {"images": 0, "handlers": 0, "scripts": 0}


def test_markup_in_keys_labels_and_nodes_is_shown_as_text(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    key = f"{IMAGE}{SCRIPT}{QUOTES}:{key}"
    crew.hold(key, f"{SCRIPT}{DRAWING}")
    crew.wait(key, f"{IMAGE}{TEMPLATE}")
    data = {"v": 1, "owner": DRAWING, "host": IMAGE, "pid": 1, "worker": QUOTES, "label": SCRIPT}
    with raw_client(site.hosts) as client:
        for number, said in enumerate([json.dumps(data), IMAGE, json.dumps(["<b>"]), "\udcff"]):
            client.create(
                f"{NAMESPACE}/{znode_name(key)}/_c_{number:08}-0000-0000-0000-000000000000-lock-",
                said.encode(errors="surrogateescape"),
                ephemeral=True,
                sequence=True,
            )
        client.create(f"{NAMESPACE}/{znode_name(key)}/{IMAGE}", ephemeral=True)
        tab = operator(site)
        tab.go(f"{LIST}?q={key[-12:]}")
        tab.sees("tr[data-key]", text=IMAGE)
        assert tab(lambda page: page.evaluate(FOUND)) == NOTHING
        tab.click("tr[data-key] th a")
        tab.sees("h1.distlock-title", text=SCRIPT)
        tab.sees("tr[data-node]", count=6)
        said = tab.text("#distlock-body")
        for text in (IMAGE, SCRIPT, DRAWING, TEMPLATE):
            assert text in said
        assert tab(lambda page: page.evaluate(FOUND)) == NOTHING
        # What the script puts in is not parsed as markup, either.
        crew.wait(key, DRAWING)
        tab.sees("tr[data-node]", count=7)
        assert tab(lambda page: page.evaluate(FOUND)) == NOTHING
        tab.click("tr[data-state=holds] a[data-action=break]")
        tab.sees("#distlock-who", text=SCRIPT)
        assert tab(lambda page: page.evaluate(FOUND)) == NOTHING
        tab.click("#distlock-confirm input[type=submit]")
        tab.sees("ul.messagelist li.success", text=SCRIPT)
        tab.sees(".distlock-log")
        assert tab(lambda page: page.evaluate(FOUND)) == NOTHING


def test_markup_in_an_address_is_text(site: Site, operator: Callable[..., Tab]) -> None:
    tab = operator(site)
    tab.go(f"{LIST}?q=%22%3E{IMAGE}{SCRIPT}")
    tab.sees("#distlock-live")
    assert tab(lambda page: page.evaluate(FOUND)) == NOTHING
    tab.go(detail(f"{IMAGE}{QUOTES}"))
    tab.sees("#distlock-nothing")
    assert tab(lambda page: page.evaluate(FOUND)) == NOTHING
