"""`manage.py distlock list` and `show`: what they tell, and how they end."""

from __future__ import annotations

import re
from functools import partial

import pytest
from pytest_django import Settings

from distlock import zk_lock
from distlock.inspection.tree import look
from distlock.management.subcommands import show
from distlock.owner.owner import label
from distlock.session.registry import session_for
from distlock_chaos.ports import free_ports
from tests.commands.tools import run, run_json
from tests.inspection.tools import cleared, draw_ticket, stand
from tests.kit.tools import PATIENCE, Tree, within

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


def test_a_key_without_a_lock_is_an_error() -> None:
    status, out, errors = run("show", "key")
    assert (status, out) == (1, "")
    assert "Nobody holds or waits for 'key'" in errors


def test_a_list_says_who_holds_what(tree: Tree) -> None:
    with cleared(tree), label("GET /buy/42"), zk_lock("stock:42"):
        stand(tree, "stock:42")
        stand(tree, "mail", "lease-", under="/leases")
        status, out, errors = run("list")
        assert (status, errors) == (0, "")
        heading, mail, stock = (line.split() for line in out.splitlines() if line)
        assert heading == ["KEY", "KIND", "HELD", "FOR", "WAIT", "LONGEST", "BY"]
        assert mail[:3] == ["mail", "semaphore", "1"]
        assert (stock[:3], stock[4]) == (["stock:42", "mutex", "1"], "1")
        assert "(GET /buy/42)" in out
        _, out, _ = run("list", "stock:")
        assert "mail" not in out
        _, out, _ = run("list", "--sort", "waiting")
        assert out.splitlines()[1].startswith("stock:42")


def test_a_list_as_json_has_everything(tree: Tree) -> None:
    with cleared(tree), label("GET /"), zk_lock("ключ\x1b") as hold:
        stand(tree, "ключ\x1b")
        listed = run_json("list")
        (lock,) = listed["locks"]
        assert listed["namespace"] == tree.namespace
        assert (listed["cut"], listed["exact"], listed["keys"]) == (False, True, 1)
        assert (lock["key"], lock["kind"]) == ("ключ\x1b", "mutex")
        assert (lock["holding"], lock["waiting"]) == (1, 1)
        (one,) = lock["holders"]
        who = one["participant"]
        assert (who["token"], who["path"], who["label"]) == (hold.token, hold.path, "GET /")
        assert who["session_id"] == session_for().id
        assert one["holds"]
        assert not who["peer"]
        (shown,) = run_json("show", "ключ\x1b")["locks"]
        assert shown["holders"][0]["participant"]["path"] == hold.path
        assert shown["waiters"][0]["participant"]["peer"]


def test_tasks_that_wait_for_their_turn_are_counted(tree: Tree) -> None:
    with cleared(tree), zk_lock("feed"):
        draw_ticket(tree, "feed")
        stand(tree, "mail", "lease-", under="/leases")
        for _ in range(3):
            draw_ticket(tree, "mail@permits")
        draw_ticket(tree, "idle")
        for nobody in ("@leases", "@permits", "@tickets", "@leases@permits"):  # anybody may do so
            draw_ticket(tree, nobody)
        facts = ("key", "kind", "holding", "waiting", "tasks")
        assert [tuple(map(lock.get, facts)) for lock in run_json("list")["locks"]] == [
            ("feed", "mutex", 1, 0, 1),
            ("idle", "mutex", 0, 0, 1),
            ("mail", "semaphore", 1, 0, 3),
        ]
        assert re.search(r"\nmail +semaphore +1 +\S+ +0\+3 +a peer", run("list")[1])
        assert [lock["key"] for lock in run_json("list", "ma")["locks"]] == ["mail"]
        said = "mail: semaphore, 1 held, 0 waiting, and Celery tasks that wait for their turn: 3\n"
        assert run("show", "mail")[1].startswith(said)
        said = "3 locks, 0 waiting. Celery tasks that wait for their turn: 5. No deadlock."
        assert said in run("top", "--once")[1]


def test_a_deadlock_is_told(tree: Tree) -> None:
    with cleared(tree):
        for key, owners in (("1", "ab"), ("2", "ba")):
            for owner in owners:
                stand(tree, key, data=owner)
        _, out, _ = run("list", "--deadlocks")
        title, *stuck = out.splitlines()[-3:]
        assert title == "Deadlock:"
        assert sorted(stuck) == ["  a holds 1 and waits for 2", "  b holds 2 and waits for 1"]
        (ring,) = run_json("list", "--deadlocks")["deadlocks"]
        assert sorted(link["key"] for link in ring) == ["1", "2"]
        assert run_json("list")["deadlocks"] == []


def test_show_tells_the_queue_in_order(tree: Tree) -> None:
    with cleared(tree), zk_lock("key") as hold:
        second, third = (stand(tree, "key", data=owner) for owner in ("second", "third"))
        status, out, errors = run("show", "key")
        assert (status, errors) == (0, "")
        lines = out.splitlines()
        assert lines[0] == "key: mutex, 1 held, 2 waiting"
        assert lines[2].split()[0] == "holds"
        assert f" {hold.token} " in lines[2]
        for line, path in zip(lines[2:5], (hold.path, second, third), strict=True):
            assert line.endswith(path.rpartition("/")[2])
        assert lines[3].split()[0] == "waits"


def test_of_a_long_line_the_first_are_shown(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "look", partial(look, depth=2))
    with cleared(tree):
        for _ in range(5):
            stand(tree, "key")
        assert "and 2 more" in run("show", "key")[1]


@pytest.mark.parametrize("command", [["list"], ["show", "key"], ["revoke", "key"], ["sweep"]])
def test_without_zookeeper_the_status_is_69(settings: Settings, command: list[str]) -> None:
    hosts = f"127.0.0.1:{free_ports(1)[0]}"
    settings.DISTLOCK = {"default": {"HOSTS": hosts, "CONNECT_TIMEOUT": 0.2}}
    with within(PATIENCE / 2):  # not the budget
        status, out, errors = run(*command)
    assert (status, out) == (69, "")
    assert hosts in errors


@pytest.mark.parametrize("command", [["list"], ["show", "key"], ["break", "key", "-y"], ["sweep"]])
def test_wrong_settings_have_status_78(command: list[str]) -> None:
    status, _, errors = run(*command, "--using", "elsewhere")
    assert status == 78
    assert "no alias 'elsewhere'" in errors
