"""What an operator sees without doing anything: the page follows the locks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Tab
from tests.browser.crew import Crew
from tests.browser.site import LIST, Site, detail

pytestmark = pytest.mark.deep

REMEMBER = "window.loaded = 'once'"
SELECT = "selector => getSelection().selectAllChildren(document.querySelector(selector))"
#: The key of the row with the focus, and whether the selection has the work of its holder.
SELECTED = """
() => [
    document.activeElement.closest("tr").dataset.key,
    (getSelection().toString().match(/a long job/) || [""])[0],
]
"""


def row(key: str) -> str:
    return f'tr[data-key="{key}"]'


def test_the_list_follows_the_locks_without_a_reload(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    tab = operator(site)
    tab.go(f"{LIST}?q={key}")
    tab.sees("#distlock-nothing")
    tab(lambda page: page.evaluate(REMEMBER))
    holder = crew.hold(key)
    tab.sees(f"{row(key)}[data-holding='1'][data-waiting='0']")
    waiter = crew.wait(key)
    tab.sees(f"{row(key)}[data-waiting='1']")
    assert "a long job" in tab.text(row(key))
    holder.leave()
    tab.sees(f"{row(key)}[data-waiting='0']", text="another job")
    waiter.leave()
    tab.sees("#distlock-nothing")
    assert tab(lambda page: page.evaluate("window.loaded")) == "once"


def test_a_paused_page_stands_still_also_after_a_reload(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    tab = operator(site)
    tab.go(f"{LIST}?q={key}")
    tab.click("#distlock-pause")
    tab.sees("#distlock-live[data-state=paused]")
    tab.go(f"{LIST}?q={key}")
    tab.sees("#distlock-pause", text="Resume")
    tab(lambda page: expect(page.get_by_role("button", name="Resume")).to_be_visible())
    asked: list[str] = []
    tab(lambda page: page.on("request", lambda request: asked.append(request.url)))
    crew.hold(key)
    tab(lambda page: page.wait_for_timeout(3000))  # more than it would have let pass
    assert asked == []
    tab.sees("#distlock-nothing")
    tab.click("#distlock-pause")
    tab.sees(row(key))
    tab.sees("#distlock-live[data-state=live]")
    tab.sees("#distlock-pause", text="Pause")


def test_a_node_name_is_shown_on_demand_and_stays_open(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    crew.hold(key, "the first")
    tab = operator(site)
    tab.go(detail(key))
    name = "[data-state=holds] dl code"
    tab.sees_no(name)
    tab.click("[data-state=holds] summary")
    tab.sees(name, text="-lock-")
    crew.wait(key, "the second")
    tab.sees("[data-node]", count=2)
    tab.sees(name, text="-lock-")
    tab.sees_no("[data-state=waits] dl code")
    tab.click("[data-state=holds] a[data-action=break]")
    tab.sees_no(".distlock-path code")
    tab.click(".distlock-path summary")
    tab.sees(".distlock-path code", text="-lock-")


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_stay_in_order_under_the_pointer(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str, width: int
) -> None:
    keys = [f"{key}:{letter}" for letter in "abc"]
    first, second, third = keys
    holders = [crew.hold(one) for one in keys]
    crew.wait(first)
    tab = operator(site, viewport={"width": width, "height": 720})
    tab.go(f"{LIST}?q={key}")

    def shown() -> list[str]:
        every = "rows => rows.map(row => row.dataset.key)"
        return tab(lambda page: page.eval_on_selector_all("tr[data-key]", every))

    before = shown()
    assert before[0] == first
    tab(lambda page: page.hover(row(second)))
    tab(lambda page: page.focus(f"{row(second)} a"))
    tab(lambda page: page.evaluate(SELECT, f"{row(second)} .distlock-who"))
    for _ in range(3):
        crew.wait(second)
    holders[2].leave()
    tab.sees(f"{row(second)}[data-waiting='3']")
    tab.sees(f"{row(third)}[data-state=gone]")
    assert shown() == before
    assert tab(lambda page: page.evaluate(SELECTED)) == [second, "a long job"]

    tab(lambda page: page.mouse.move(0, 0))
    tab.sees(row(third), count=0)
    assert shown() == [second, first]
    assert tab(lambda page: page.evaluate(SELECTED)) == [second, "a long job"]


def test_clocks_run_while_the_server_has_nothing_new_to_say(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    crew.hold(key)
    tab = operator(site)
    tab.go(detail(key))
    clock = "[data-state=holds] time"
    tab(lambda page: page.wait_for_event("response", lambda answer: answer.status == 304))
    before = int(tab.text(clock).partition(" ")[0])
    tab.sees(clock, text=f"{before + 3} s")
    assert tab(lambda page: page.locator(clock).get_attribute("title"))


def test_a_page_whose_login_ends_says_so_and_stops(
    site: Site, operator: Callable[..., Tab], key: str
) -> None:
    tab = operator(site)
    tab.go(f"{LIST}?q={key}")
    tab(lambda page: page.context.clear_cookies())
    tab.sees("#distlock-stale", text="not logged in")
    tab(lambda page: expect(page.locator("#distlock-live[data-state=stopped]")).to_be_visible())


def test_without_scripts_the_page_is_complete(
    site: Site, operator: Callable[..., Tab], crew: Crew, key: str
) -> None:
    crew.hold(key)
    tab = operator(site, java_script_enabled=False)
    tab.go(f"{LIST}?q={key}")
    tab.sees_no("#distlock-pause")
    tab.click(f"{row(key)} th a")
    tab.click("a[data-action=break]")
    tab.click("#distlock-confirm input[type=submit]")
    tab.sees("ul.messagelist li.success")
