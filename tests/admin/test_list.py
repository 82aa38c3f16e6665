"""The list of all locks: what is shown, searched, chosen and sorted, and what is left out."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from pytest_django import Settings

from distlock import zk_lease, zk_lock
from distlock.admin import model_admin
from distlock.engine.hosts import settings_of
from distlock.inspection.wait_graph import deadlocks
from distlock_chaos.ports import free_ports
from tests.admin.tools import LIST, address, keys, markup, said
from tests.inspection.tools import cleared, stand
from tests.kit.tools import PATIENCE, MakeOwner, Tree

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


def test_locks_are_shown_with_their_holders_and_linked(
    tree: Tree, operator: Client, make_owner: MakeOwner
) -> None:
    rival = make_owner()
    with zk_lock("stock:1"):
        waiting = rival.submit(zk_lock("stock:1", timeout=PATIENCE).acquire)
        tree.await_line("stock:1", 2)
        page = operator.get(LIST)
        assert keys(page) == ["stock:1"]
        assert "1 holder · 1 waiter under" in said(page)
        assert f'href="{address("stock:1")}"' in markup(page)
        assert "MainThread" in said(page)
    assert waiting.result(PATIENCE)
    rival.now(zk_lock("stock:1").release)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["b:2", "a:1", "B:3", "c", "export"]),
        ("?o=key", ["B:3", "a:1", "b:2", "c", "export"]),
        ("?o=nonsense&p=-1", ["b:2", "a:1", "B:3", "c", "export"]),
        ("?q=B", ["b:2", "B:3"]),
        ("?contended=1", ["b:2", "a:1", "B:3"]),
        ("?q=b&contended=1", ["b:2", "B:3"]),
    ],
)
def test_searched_chosen_and_sorted(
    tree: Tree, operator: Client, query: str, expected: list[str]
) -> None:
    lease = zk_lease("export", 600, owner="nightly")
    assert lease.acquire()
    with cleared(tree):
        for key, count in {"b:2": 4, "a:1": 3, "B:3": 2, "c": 1}.items():
            for _ in range(count):
                stand(tree, key)
        assert keys(operator.get(LIST + query)) == expected
        lease.release()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("web-3:412", ["b", "a", "c"]),
        ("web-4", ["a"]),
        ("THREAD-9", ["c"]),
        ("buy", ["b"]),
        ("nightly", ["export"]),
    ],
)
def test_searched_by_host_process_task_and_request(
    tree: Tree, operator: Client, text: str, expected: list[str]
) -> None:
    lease = zk_lease("export", 600, owner="nightly")
    assert lease.acquire()
    with cleared(tree):
        stand_at(tree, "a", "web-4")
        stand_at(tree, "a", "web-3")
        stand_at(tree, "b", "web-3", label="POST /buy/")
        for _ in range(2):
            stand_at(tree, "b", "web-5")
        stand_at(tree, "c", "web-3", worker="Thread-9")
        stand_at(tree, "d", "web-33")
        page = operator.get(LIST, {"q": text})
        assert keys(page) == expected
        assert ("web-3:412 : holds 2 locks, waits 1 time" in said(page)) == (text == "web-3:412")
        lease.release()


def stand_at(tree: Tree, key: str, host: str, **facts: str) -> str:
    """Make a node of a process."""
    said_by = {"v": 1, "owner": f"{key} {host}", "host": host, "pid": 412, **facts}
    return stand(tree, key, data=json.dumps(said_by).encode())


def test_the_column_that_it_is_sorted_by_is_said(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        stand(tree, "a")
        page = markup(operator.get(LIST))
        assert page.count('aria-sort="descending"') == 1
        assert '<a href="?o=waiting" id="distlock-sort-waiting"' in page
        assert '<a href="?o=key" id="distlock-sort-key"' in page
        page = markup(operator.get(f"{LIST}?o=key"))
        assert page.count('aria-sort="ascending"') == 1
        assert '<a href="?o=waiting" id="distlock-sort-waiting"' in page


def test_markup_in_a_key_and_in_what_a_node_says_is_text(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        evil = "<script>alert(1)</script>\u202e\"'"
        stand(tree, evil, data='"><img src=x onerror=alert(1)>')
        for page in (operator.get(LIST), operator.get(f"{LIST}?q=<script>alert")):
            assert keys(page) == [evil.replace("\u202e", "\N{REPLACEMENT CHARACTER}")]
            assert "<script>alert" not in markup(page)
            assert "<img src=x" not in markup(page)


# --- more than fits ------------------------------------------------------------------------------


def test_pages(tree: Tree, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_admin, "PAGE_SIZE", 2)
    with cleared(tree):
        for number in range(5):
            stand(tree, f"key-{number}")
        first, last = operator.get(f"{LIST}?o=key"), operator.get(f"{LIST}?o=key&p=9")
        assert keys(first) == ["key-0", "key-1"]
        assert 'href="?o=key&amp;p=2"' in markup(first)
        assert "Page 1 of 3" in said(first)
        assert keys(last) == ["key-4"]
        assert "Previous" in said(last)
        assert "Next" not in said(last)


# --- aliases, fragments, deadlocks ---------------------------------------------------------------


def test_each_alias_has_its_list(tree: Tree, operator: Client, two_sessions: Settings) -> None:
    elsewhere = {**two_sessions.DISTLOCK["other"], "NAMESPACE": f"{tree.namespace}/elsewhere"}
    two_sessions.DISTLOCK = {**two_sessions.DISTLOCK, "other": elsewhere}
    with zk_lock("here"):
        page = operator.get(f"{LIST}?using=other")
        assert "Nobody holds or waits for a lock." in said(page)
        assert '<a href="?using=other" aria-current="page"><b>other</b>' in markup(page)
        assert '<a href="?"><b>default</b>' in markup(page)
    assert operator.get(f"{LIST}?using=none").status_code == 404
    assert operator.get(address("here", using="none")).status_code == 404


def test_a_tab_tells_of_its_alias_what_needs_a_look(
    tree: Tree, operator: Client, two_sessions: Settings
) -> None:
    (port,) = free_ports(1)
    away = {**two_sessions.DISTLOCK["other"], "HOSTS": f"redis://127.0.0.1:{port}"}
    two_sessions.DISTLOCK = {**two_sessions.DISTLOCK, "away": away}
    with cleared(tree):
        for key, holder, waiter in (("a", "x", "y"), ("b", "y", "x")):
            stand(tree, key, data=holder)
            stand(tree, key, data=waiter)
        assert deadlocks(budget=PATIENCE)
        tabs = said(operator.get(f"{LIST}?using=other")).partition("Search")[0]
        engine = settings_of(two_sessions.DISTLOCK["default"]["HOSTS"]).NAME
        assert f"default {engine} · 2 waiters 1 deadlock" in tabs
        assert "away Redis not read" in tabs


def test_a_poll_is_answered_in_full_only_if_something_has_changed(
    tree: Tree, operator: Client
) -> None:
    with cleared(tree):
        stand(tree, "a")
        for page in (f"{LIST}?_fragment=1", address("a", _fragment=1)):
            first = operator.get(page)
            again = operator.get(page, headers={"if-none-match": first["ETag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert int(again["Distlock-Now"]) > int(first["Distlock-Now"])
            stand(tree, "a")
            assert operator.get(page, headers={"if-none-match": first["ETag"]}).status_code == 200


def test_a_fragment_has_only_what_changes(tree: Tree, operator: Client) -> None:
    fragment = f"{LIST}?_fragment=1"
    first = operator.get(fragment)
    assert "<html" not in markup(first)
    assert 'id="distlock-body"' in markup(first)
    assert int(first["Distlock-Interval"]) >= 2000
    with cleared(tree):
        stand(tree, "a")
        assert keys(operator.get(fragment)) == ["a"]


def test_a_deadlock_is_named_on_the_list_and_on_the_pages_of_its_locks(
    tree: Tree, operator: Client
) -> None:
    with cleared(tree):
        for key, holder, waiter in (("a", "x", "y"), ("b", "y", "x")):
            stand(tree, key, data=holder)
            stand(tree, key, data=waiter)
        assert deadlocks(budget=PATIENCE)
        stand(tree, "blocked", data="x")
        stand(tree, "other", data="z")
        for page in (LIST, address("a"), address("blocked")):
            text = said(operator.get(page))
            assert "There is a deadlock." in text
            assert "x waits for b , held by y" in text
            assert "y waits for a , held by x" in text
        assert "deadlock" not in said(operator.get(address("other")))
