"""A deadlock of three processes on the page, and how it ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from kazoo.exceptions import NoNodeError

from distlock.keys.templates import znode_name
from tests.browser.chromium import Tab
from tests.browser.site import LIST, NAMESPACE, Site, detail
from tests.kit.helpers import raw_client, spawn_python
from tests.kit.losses import said, tell

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
        tab.click("tr[data-state=holds] a[data-action=break]")
        tab.click("#distlock-confirm input[type=submit]")
        tab.sees("ul.messagelist li.success")
        tab.sees(".distlock-deadlock", count=0)
        # Whoever has lost its lock goes on waiting for the other, and may end before it knows.
        assert {outcome for outcome, _ in outcomes(processes)} <= {"has both", "LockLost"}
