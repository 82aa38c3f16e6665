"""Asking a participant to release a lock, and breaking it: who may, what is hit, what is noted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from kazoo.exceptions import NoNodeError
from playwright.sync_api import Page

from distlock import LockLost
from distlock.keys.templates import znode_name
from tests.browser.chromium import PATIENCE, Tab
from tests.browser.crew import Crew
from tests.browser.site import LIST, NAMESPACE, Site, Sites, detail
from tests.kit.helpers import eventually, raw_client, spawn_python
from tests.kit.losses import said, tell

CONFIRM = "#distlock-confirm input[type=submit]"
CHANGE, DELETION = 2, 3


def choose(tab: Tab, key: str, action: str, *, state: str = "holds") -> None:
    """Go from the page of a lock to the confirmation of what to do to somebody."""
    tab.go(detail(key))
    tab.click(f"[data-state={state}] a[data-action={action}]")
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
    tab.sees("[data-state=holds]", text="a patient job")
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
            "[data-state=holds] a[data-action=break]",
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


# --- a deadlock of three processes ---------------------------------------------------------------


PROCESS = """
import json, sys
from tests.kit.tools import set_up
from tests.kit.stopwatch import Stopwatch
hosts, namespace, after, held, wanted = sys.argv[1:]
set_up(hosts, namespace, SESSION_TIMEOUT=20, CONNECT_TIMEOUT=20, DEADLOCK_AFTER=json.loads(after))
from distlock import DistlockError, zk_lock
from distlock.owner.owner import label
outcome, watch = "", Stopwatch()
try:
    with label("transfer of " + held), zk_lock(held):
        print("holds", flush=True)
        sys.stdin.readline()
        with watch, zk_lock(wanted, timeout=120):
            outcome = "has both"
except DistlockError as error:
    outcome = type(error).__name__
print(json.dumps([outcome, watch.taken]), flush=True)
"""


@contextmanager
def circle(
    site: Site, key: str, *, after: float | None
) -> Iterator[tuple[list[str], list[subprocess.Popen[str]]]]:
    """Three processes, each of which holds one lock and waits for the next one's."""
    keys = [f"{key}:{letter}" for letter in "abc"]
    with ExitStack() as stack:
        stack.callback(forget, site, keys)
        processes = [
            stack.enter_context(
                spawn_python(
                    PROCESS, site.hosts, NAMESPACE, json.dumps(after), held, keys[place - 2]
                )
            )
            for place, held in enumerate(keys)
        ]
        for process in processes:
            assert said(process) == "holds"
        for process in processes:
            tell(process)
        yield keys, processes


def forget(site: Site, keys: list[str]) -> None:
    """Remove the locks of killed processes: other tests would see a deadlock for a while."""
    with raw_client(site.hosts) as client:
        for key in keys:
            with suppress(NoNodeError):
                client.delete(f"{NAMESPACE}/{znode_name(key)}", recursive=True)


def outcomes(processes: list[subprocess.Popen[str]]) -> list[tuple[str, float]]:
    return [tuple(json.loads(said(process))) for process in processes]


@pytest.mark.deep
def test_it_is_told_and_drawn_and_ends_when_one_lock_is_broken(
    site: Site, operator: Callable[..., Tab], key: str
) -> None:
    tab = operator(site)
    tab.go(LIST)
    with circle(site, key, after=None) as (keys, processes):
        tab.sees(".distlock-deadlock[role=alert]")
        words = tab.text("[data-cycle]")
        for one, process in zip(keys, processes, strict=True):
            assert one in words
            assert str(process.pid) in words
            assert f"transfer of {one}" in words
        tab.sees(".distlock-deadlock-drawing svg")
        tab.go(detail(keys[0]))
        tab.sees(".distlock-deadlock[role=alert]")
        tab.sees(".distlock-deadlock-drawing svg")
        tab.click(".distlock-deadlock a")  # to one of the locks
        tab.click("[data-state=holds] a[data-action=break]")
        tab.click("#distlock-confirm input[type=submit]")
        tab.sees("ul.messagelist li.success")
        tab.sees(".distlock-deadlock", count=0)
        # Whoever has lost its lock goes on waiting for the other, and may end before it knows.
        assert {outcome for outcome, _ in outcomes(processes)} <= {"has both", "LockLost"}
