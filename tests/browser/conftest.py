"""Fixtures: one Chromium and one gunicorn for a run, windows of operators, workers with locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from pytest_django import Settings

from distlock.session.registry import close_sessions
from distlock_chaos.server import ZooKeeper
from tests.browser.chromium import Chromium, ChromiumNotInstalled, Tab
from tests.browser.crew import Crew
from tests.browser.site import NAMESPACE, Site, SiteAt, Sites, chroot


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    try:
        browser = Chromium().__enter__()
    except ChromiumNotInstalled as error:
        pytest.skip(str(error))
    try:
        yield browser
    finally:
        browser.__exit__()


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    return Sites(tmp_path_factory.mktemp("sites"))


@pytest.fixture(scope="session")
def shared_site(sites: Sites, zookeeper: ZooKeeper) -> Iterator[Site]:
    with sites.at(chroot(zookeeper.hosts)) as site:
        yield site


@pytest.fixture
def site(shared_site: Site, settings: Settings) -> Site:
    """The shop, whose locks this process takes, too."""
    return use(shared_site, settings)


def use(site: Site, settings: Settings) -> Site:
    """Let the workers of this process take the site's locks."""
    settings.DISTLOCK = {
        "default": {
            "HOSTS": site.hosts,
            "NAMESPACE": NAMESPACE,
            "SESSION_TIMEOUT": 10,
            "CONNECT_TIMEOUT": 20,
        }
    }
    return site


@pytest.fixture
def site_at(sites: Sites) -> Iterator[SiteAt]:
    """Returns a shop of the test's own, with its locks on these servers."""
    with ExitStack() as stack:
        yield lambda hosts: stack.enter_context(sites.at(hosts))


@pytest.fixture
def operator(
    chromium: Chromium,
    sites: Sites,
    site_at: SiteAt,  # noqa: ARG001 - a shop ends after its windows
) -> Iterator[Callable[..., Tab]]:
    """Returns a new window of somebody who is logged in: `operator(site, "viewer")`.

    Whatever the page complains of at the end, or puts before its reader, fails the test.
    """
    windows: list[Tab] = []

    def login(site: Site, name: str = "chief", **options: Any) -> Tab:
        tab = chromium.open(site.address, **options)
        windows.append(tab)
        session = sites.sessions[name]
        tab(
            lambda page: page.context.add_cookies(
                [{"name": "sessionid", "value": session, "url": site.address}]
            )
        )
        return tab

    yield login
    for tab in windows:
        tab.close()
    assert [tab.complaints + tab.dialogs for tab in windows] == [[] for _ in windows]


@pytest.fixture
def crew(site: Site) -> Iterator[Crew]:
    """Whoever holds and waits for locks of the shared site."""
    del site
    with Crew() as crew:
        yield crew
    close_sessions()


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"job:{uuid4().hex[:12]}"
