"""The page of one lock: the holders and the queue in order, and all that is known of each."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client
from django.utils.timezone import localtime
from pytest_django import Settings

from distlock import escape_key, zk_lease, zk_lock
from distlock.admin import model_admin
from distlock.inspection.tree import snapshot
from tests.admin.tools import LIST, MakeOperator, address, keys, markup, of, rows, said
from tests.inspection.tools import cleared, draw_ticket, stand, the_lock
from tests.kit.tools import PATIENCE, Tree

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

SAID = json.dumps(
    {
        "v": 1,
        "owner": "o1",
        "host": "web<1>",
        "pid": 4711,
        "worker": "Thread-7",
        "label": "POST /buy/42",
        "since": 1,
    }
)


def test_all_that_a_participant_says_is_shown(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        stand(tree, "key", data=SAID.encode())
        stand(tree, "key")
        page = operator.get(address("key"))
        assert [state for state, _ in rows(page)] == ["holds", "waits"]
        assert "holds POST /buy/42 web<1>:4711 Thread-7" in said(page)
        assert "Host web<1> Process 4711 Thread or task Thread-7" in said(page)
        assert "web<1>" not in markup(page)
        lock = the_lock("key")
        for one in (*lock.holders, *lock.waiters):
            assert str(one.participant.token) in said(page)
            assert f"{one.participant.session_id:x}" not in said(page)  # it lets others end it
            assert one.since is not None
            assert f"{localtime(one.since):%Y-%m-%d %H:%M:%S %z}" in said(page)
        assert "a peer that does not say who it is" in said(page)
        assert re.search(r"Thread-7 under \d+\.\d s .* 1\. a peer .* \d+\.\d s", said(page))


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns"])
def test_all_times_have_one_format_and_a_zone(
    tree: Tree, operator: Client, settings: Settings, zone: str
) -> None:
    settings.TIME_ZONE = zone
    lease = zk_lease("export", 600, owner="nightly")
    assert lease.acquire()
    with cleared(tree):
        stand(tree, "key", data=SAID.encode())
        (holder,) = the_lock("key").holders
        confirmation = operator.get(of(holder, "key", "break"))
        operator.post(of(holder, "key", "break"))
        stand(tree, "key")
        answers = [operator.get(one) for one in (address("key"), address("@leases/export"))]
        for page in map(said, [*answers, confirmation]):
            times = re.findall(r"\d\d:\d\d:\d\d(?: \S+)?", page)
            assert times
            assert all(re.fullmatch(r"\S+ [+-]\d\d30", time) for time in times)
            assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", page)) == len(times)
        lease.release()


def test_the_queue_is_in_order(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        paths = [stand(tree, "key") for _ in range(4)]
        page = operator.get(address("key"))
        names = [path.rpartition("/")[2] for path in paths]
        assert rows(page) == [("holds", names[0]), *(("waits", name) for name in names[1:])]
        assert "1. a peer" in said(page)
        assert "3. a peer" in said(page)


def test_tasks_that_wait_for_their_turn_are_counted(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        for _ in range(3):
            draw_ticket(tree, "key")
        for page in (address("key"), LIST):
            assert " 3 tasks wait " in said(operator.get(page)), page
        stand(tree, "key")
        (holder,) = the_lock("key").holders
        warning = said(operator.get(of(holder, "key", "break")))
        assert "It is free for the next Celery task, or for whoever asks before it." in warning


def test_of_a_long_queue_the_first_are_shown_and_the_rest_is_counted(
    tree: Tree, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_admin, "DEPTH", 5)
    monkeypatch.setattr(model_admin, "SHORT", 3)
    with cleared(tree):
        for number in range(8):
            said_by = {"v": 1, "owner": f"o{number}", "host": f"web-{number % 2}", "pid": 7}
            stand(tree, "key", data=json.dumps(said_by).encode())
        page, everything = operator.get(address("key")), operator.get(address("key", all=1))
        assert len(rows(page)) == 4
        assert re.search(r"web-1:7 3 waiters 1\. .* 3\. .* web-0:7 2 waiters 2\. ", said(page))
        assert "and 4 more waiters" in said(page)
        assert "1 holder · 7 waiters" in said(page)
        assert f'href="{address("key", all=1).rpartition("/")[2]}"' in markup(page)
        assert len(rows(everything)) == 6
        assert "and 2 more waiters" in said(everything)


@pytest.mark.parametrize(
    "key", ["a/b", "%41", "A", "50% off?", "é<b>", "x" * 300, "&#;:_", "@leases", ".."], ids=ascii
)
def test_whatever_the_key_its_page_is_linked_and_shows_it(operator: Client, key: str) -> None:
    with zk_lock(escape_key(key)):
        (lock,) = snapshot(budget=PATIENCE).locks
        link = address(lock.name)
        assert f'href="{link}"' in markup(operator.get("/admin/distlock/lock/"))
        assert len(rows(operator.get(link))) == 1


@pytest.mark.parametrize("name", ["a b", "é"], ids=ascii)
def test_a_peers_name_that_no_key_of_ours_has_can_be_looked_at(
    tree: Tree, operator: Client, name: str
) -> None:
    with cleared(tree):
        path = f"{tree.namespace}/{name}/_c_{'0' * 36}-lock-"
        tree.client.create(path, ephemeral=True, sequence=True, makepath=True)
        assert len(rows(operator.get(address(name)))) == 1
        assert keys(operator.get("/admin/distlock/lock/")) == [name]


@pytest.mark.parametrize("name", ["%00", "a/b", "%ED%A0%80", "%2E%2E", "@leases%2F"])
def test_what_is_no_name_of_a_lock_has_nobody(operator: Client, name: str) -> None:
    page = operator.get(f"/admin/distlock/lock/default:{name}/change/")
    assert "Nobody holds this lock" in said(page)


def test_only_who_may_sees_the_buttons(tree: Tree, make_operator: MakeOperator) -> None:
    with cleared(tree):
        stand(tree, "key")
        for number, actions in enumerate([(), ("revoke",), ("break",), ("revoke", "break")]):
            permissions = ("view_lock", *(f"{one}_lock" for one in actions))
            page = markup(make_operator(*permissions, name=f"o{number}").get(address("key")))
            shown = {one for one in ("revoke", "break") if f'data-action="{one}"' in page}
            assert shown == set(actions)
