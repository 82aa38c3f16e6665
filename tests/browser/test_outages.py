"""The page while ZooKeeper is away, says nothing, or has lost a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from distlock.admin.reading import BUDGET
from distlock.session.registry import close_sessions
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.browser.conftest import use
from tests.browser.crew import Crew
from tests.browser.site import LIST, chroot
from tests.kit.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django import Settings

    from tests.browser.chromium import Tab
    from tests.browser.site import SiteAt

pytestmark = pytest.mark.deep


@pytest.fixture
def _sessions_end() -> Iterator[None]:
    """Those of this process with servers that end with the test."""
    yield
    close_sessions()


@pytest.mark.usefixtures("_sessions_end")
def test_a_server_that_stops_while_the_page_is_open_and_comes_back(
    site_at: SiteAt, operator: Callable[..., Tab], settings: Settings, key: str
) -> None:
    with ZooKeeper() as zookeeper:
        site = use(site_at(chroot(zookeeper.hosts)), settings)
        tab = operator(site)
        with Crew() as crew:
            crew.hold(key)
            tab.go(LIST)
            tab.sees(f'tr[data-key="{key}"]')
            tab(lambda page: page.evaluate("window.loaded = 'once'"))
            zookeeper.servers[0].stop()
            tab.sees("#distlock-stale", text="This is the state of")
            tab.sees("#distlock-unavailable[role=alert]", text="doctor")
            tab.sees(f'tr[data-key="{key}"]')  # what was there
        with Stopwatch() as watch:
            tab.go(LIST)  # a new page has nothing to show but why
        assert watch.taken < 2 * BUDGET
        tab.sees("#distlock-unavailable")
        tab.sees("#distlock-stale")
        tab(lambda page: page.evaluate("window.loaded = 'once'"))
        zookeeper.servers[0].start()
        tab(
            lambda page: expect(page.locator("#distlock-live")).to_have_attribute(
                "data-state", "live", timeout=60_000
            )
        )
        tab.sees_no("#distlock-stale")
        tab.sees("#distlock-unavailable", count=0)
        assert tab(lambda page: page.evaluate("window.loaded")) == "once"


def test_a_server_that_accepts_and_never_answers(
    site_at: SiteAt, operator: Callable[..., Tab], zookeeper: ZooKeeper
) -> None:
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        proxy.black_hole()
        tab = operator(site_at(proxy.address))
        for _ in range(2):
            with Stopwatch() as watch:
                tab.go(LIST)
            # Its budget, and what Chromium and a loaded machine need.
            assert watch.taken < 2 * BUDGET
            tab.sees("#distlock-unavailable[role=alert]", text="doctor")
        proxy.pass_through()
        tab(
            lambda page: expect(page.locator("#distlock-live")).to_have_attribute(
                "data-state", "live", timeout=60_000
            )
        )
        tab.sees("#distlock-nothing")
