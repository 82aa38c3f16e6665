"""Asking a participant to release a lock, and breaking it: who may, what is hit, what is noted."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from playwright.sync_api import Page

from distlock import LockLost
from tests.browser.chromium import PATIENCE, Tab
from tests.browser.crew import Crew
from tests.browser.site import Site, Sites, detail
from tests.kit.helpers import eventually

CONFIRM = "#distlock-confirm input[type=submit]"
CHANGE, DELETION = 2, 3


def choose(tab: Tab, key: str, action: str, *, state: str = "holds") -> None:
    """Go from the page of a lock to the confirmation of what to do to somebody."""
    tab.go(detail(key))
    tab.click(f"tr[data-state={state}] a[data-action={action}]")
    tab.sees("#distlock-confirm")


def test_a_broken_holder_loses_the_lock_to_the_next(
    site: Site, sites: Sites, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder, waiter = crew.hold(key, "a stuck job"), crew.wait(key, "a patient job")
    tab = operator(site, "breaker")
    choose(tab, key, "break")
    said = tab.text("#content-main")
    for words in (key, "a stuck job", socket.gethostname(), str(os.getpid()), "a patient job"):
        assert words in said
    assert holder.holds  # nothing has been done yet
    tab.click(CONFIRM)
    tab.sees("ul.messagelist li.success", text="a stuck job")
    eventually(lambda: isinstance(holder.error, LockLost), PATIENCE)
    eventually(lambda: waiter.holds, PATIENCE)
    tab.sees("tr[data-state=holds]", text="a patient job")
    ((name, flag, message),) = sites.log_entries(key)
    assert (name, flag) == ("breaker", DELETION)
    assert "a stuck job" in message
    tab.sees(".distlock-log", text="breaker")


def test_a_lock_is_broken_with_the_keyboard_alone(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder = crew.hold(key)
    tab = operator(site)
    tab.go(f"/admin/distlock/lock/?q={key}")
    tab.sees(f'tr[data-key="{key}"]')

    def go(page: Page) -> None:
        for selector in (
            f'tr[data-key="{key}"] th a',
            "tr[data-state=holds] a[data-action=break]",
            CONFIRM,
        ):
            page.wait_for_selector(selector)
            for _ in range(80):
                page.keyboard.press("Tab")
                if page.evaluate("s => document.activeElement.matches(s)", selector):
                    break
            else:
                raise AssertionError(f"Tab does not come to {selector}")
            outline = page.evaluate(
                "() => { const s = getComputedStyle(document.activeElement);"
                " return s.outlineStyle + s.boxShadow + s.textDecorationLine }"
            )
            assert outline != "nonenonenone", f"{selector} does not look focused"
            page.keyboard.press("Enter")

    tab(go)
    tab.sees("ul.messagelist li.success")
    eventually(lambda: isinstance(holder.error, LockLost), PATIENCE)
