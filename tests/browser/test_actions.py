"""Asking a participant to release a lock, and breaking it: who may, what is hit, what is noted."""

from __future__ import annotations

import html
import os
import socket
from typing import TYPE_CHECKING

import pytest

from distlock import LockLost, zk_lock
from tests.browser.chromium import PATIENCE
from tests.browser.site import OPERATORS, detail
from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import APIResponse, Page

    from tests.browser.chromium import Tab
    from tests.browser.crew import Crew
    from tests.browser.site import Site, Sites

CONFIRM = "#distlock-confirm input[type=submit]"
CHANGE, DELETION = 2, 3
BACKGROUND = "one => getComputedStyle(one).backgroundColor"


def choose(tab: Tab, key: str, action: str, *, state: str = "holds") -> None:
    """Go from the page of a lock to the confirmation of what to do to somebody."""
    tab.go(detail(key))
    tab.click(f"tr[data-state={state}] a[data-action={action}]")
    tab.sees("#distlock-confirm")


def post(tab: Tab, *, token: bool = True) -> APIResponse:
    """Send the form of the confirmation that the tab shows, perhaps without its CSRF token."""

    def send(page: Page) -> APIResponse:
        name = "csrfmiddlewaretoken"
        value = page.locator(f"#distlock-confirm input[name={name}]").input_value()
        form: dict[str, str | float | bool] = {name: value} if token else {}
        # Not from the page: Chromium notes any status but 200 in the console.
        return page.request.post(page.url, form=form, max_redirects=0)

    return tab(send)


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


def test_a_waiter_is_removed_and_the_holder_stays(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder, waiter = crew.hold(key, "a job"), crew.wait(key, "an unwanted job")
    tab = operator(site, "breaker")
    (before,) = zk_lock(key).participants()[1:]
    choose(tab, key, "break", state="waits")
    assert "an unwanted job" in tab.text("#distlock-who")
    tab.click(CONFIRM)
    tab.sees("ul.messagelist li.success", text="an unwanted job")
    eventually(lambda: before not in zk_lock(key).participants(), PATIENCE)
    assert holder.holds
    assert not waiter.holds


def test_who_is_asked_to_release_does_so(
    site: Site, sites: Sites, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder = crew.hold(key, "a polite job")
    tab = operator(site, "revoker")
    chief = operator(site)
    choose(chief, key, "break")
    red = chief(lambda page: page.eval_on_selector(CONFIRM, BACKGROUND))
    choose(tab, key, "revoke")
    assert "a polite job" in tab.text("#distlock-who")
    assert tab(lambda page: page.eval_on_selector(CONFIRM, BACKGROUND)) != red
    assert not holder.asked
    tab.click(CONFIRM)
    tab.sees("ul.messagelist li.success", text="a polite job")
    eventually(lambda: holder.asked and not holder.holds, PATIENCE)
    assert holder.error is None
    tab.sees("#distlock-nothing")
    ((name, flag, _),) = sites.log_entries(key)
    assert (name, flag) == ("revoker", CHANGE)


@pytest.mark.parametrize("name", ["viewer", "revoker", "breaker"])
def test_without_the_permission_there_is_no_button_and_no_way_around_it(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str, name: str
) -> None:
    holder = crew.hold(key)
    tab, chief = operator(site, name), operator(site)
    tab.go(detail(key))
    tab.sees("tr[data-state=holds]")
    for action in ("revoke", "break"):
        button = f"a[data-action={action}]"
        if OPERATORS[name][1:] == [f"{action}_lock"]:
            tab.sees(button)
            continue
        tab.sees(button, count=0)
        choose(chief, key, action)
        address = chief(lambda page: page.url)

        def ways(page: Page, address: str = address) -> tuple[APIResponse, APIResponse]:
            token = page.request.get("/admin/password_change/").text()
            token = token.partition('csrfmiddlewaretoken" value="')[2].partition('"')[0]
            form: dict[str, str | float | bool] = {"csrfmiddlewaretoken": token}
            return page.request.get(address), page.request.post(address, form=form)

        assert [answer.status for answer in tab(ways)] == [403, 403]
    assert holder.holds
    assert not holder.asked


def test_who_may_not_look_sees_no_lock(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    crew.hold(key)
    tab = operator(site, "guest")
    tab.go("/admin/")
    tab.sees("a[href*='distlock']", count=0)
    answer = tab(lambda page: page.request.get(detail(key)))
    assert answer.status == 403


def test_two_operators_break_the_same_node(
    site: Site, sites: Sites, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder, waiter = crew.hold(key, "a stuck job"), crew.wait(key, "the next job")
    first, second = operator(site), operator(site, "breaker")
    choose(first, key, "break")
    choose(second, key, "break")
    first.click(CONFIRM)
    first.sees("ul.messagelist li.success")
    eventually(lambda: holder.error and waiter.holds, PATIENCE)
    second.click(CONFIRM)
    second.sees("ul.messagelist li.warning")
    second.sees("tr[data-state=holds]", text="the next job")
    assert waiter.holds
    assert waiter.error is None
    assert [name for name, *_ in sites.log_entries(key)] == ["chief"]


def test_a_form_that_is_sent_twice_hits_nobody_else(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder, waiter = crew.hold(key), crew.wait(key)
    tab = operator(site)
    choose(tab, key, "break")
    assert post(tab).status == 302
    eventually(lambda: holder.error and waiter.holds, PATIENCE)
    assert post(tab).status == 302
    tab.go(detail(key))
    tab.sees("ul.messagelist li.warning")
    tab.sees("tr[data-state=holds]")
    assert waiter.holds


def test_a_form_without_the_token_does_nothing(
    site: Site, sites: Sites, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder = crew.hold(key)
    tab = operator(site)
    choose(tab, key, "break")
    assert post(tab, token=False).status == 403
    assert holder.holds
    assert sites.log_entries(key) == []
    assert post(tab).status == 302  # so it was not that nothing could be done


def test_another_site_cannot_send_the_form(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    holder = crew.hold(key)
    tab = operator(site)
    choose(tab, key, "break")
    address = tab(lambda page: page.url)

    def attack(page: Page) -> str:
        page.route(
            "http://elsewhere.test/",
            lambda route: route.fulfill(
                content_type="text/html",
                body=f'<form method="post" action="{html.escape(address)}">'
                "<button>Win a prize</button></form>",
            ),
        )
        page.goto("http://elsewhere.test/")
        page.click("button")
        page.wait_for_url(lambda url: "elsewhere" not in url)
        return page.inner_text("body")

    said = tab(attack)
    assert "Forbidden" in said or "Log in" in said
    assert holder.holds
    tab.complaints.clear()  # of the answer 403, which was wanted, and the style of Django's page


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
