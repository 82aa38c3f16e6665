"""`manage.py distlock why`: sentences that say what holds a lock up."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.utils.timezone import now

from distlock import zk_lease, zk_lock, zk_semaphore
from distlock.models import LockEvent
from distlock.owner.owner import label
from tests.commands.tools import run
from tests.inspection.tools import cleared, draw_ticket, stand
from tests.kit.losses import SetOptions
from tests.kit.tools import Tree

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


def somebody(owner: str, work: str) -> bytes:
    facts = {"owner": owner, "host": owner, "pid": 7, "worker": "Thread-7", "label": work}
    return json.dumps({"v": 1, **facts}).encode()


def why(key: str) -> str:
    """The answer, with each time as N."""
    status, out, errors = run("why", key)
    assert (status, errors) == (0, "")
    return re.sub(r"for (under )?\d+(\.\d)? s\b|just granted", "for N s", out)


def test_it_says_who_holds_and_who_waits(tree: Tree) -> None:
    with cleared(tree), label("POST /buy/42"), zk_lock("stock:42"):
        assert re.fullmatch(
            r"stock:42 is held by \S+:\d+ \(POST /buy/42\), for N s\. "
            r"Nobody waits behind it\. No deadlock\.\n",
            why("stock:42"),
        )
        stand(tree, "stock:42", data=somebody("web1", "GET /"))
        assert " 1 waits behind it, for N s: web1:7 (GET /). No" in why("stock:42")
        stand(tree, "stock:42", data=somebody("web2", "GET /"))
        assert " 2 wait behind it, the first for N s: web1:7 (GET /). No" in why("stock:42")


def test_it_follows_a_holder_that_waits_itself(tree: Tree) -> None:
    with cleared(tree):
        for key, owners in {"1": "ab", "2": "bc", "3": "cd"}.items():
            for owner in owners:
                stand(tree, key, data=somebody(owner, "GET /"))
        assert why("3").endswith(
            "1 waits behind it, for N s: d:7 (GET /). c:7 (GET /) waits for 2, which b:7 (GET /) "
            "holds; b:7 (GET /) waits for 1, which a:7 (GET /) holds. No deadlock.\n"
        )


@pytest.mark.parametrize("key", ["1", "2", "behind"])
def test_it_names_a_deadlock_also_to_who_waits_behind_one(tree: Tree, key: str) -> None:
    with cleared(tree):
        for name, owners in {"1": "ab", "2": "ba", "behind": "bc"}.items():
            for owner in owners:
                stand(tree, name, data=owner)
        text = why(key)
    (said,) = re.findall(r"Deadlock: (.*)\.\n", text)
    assert sorted(said.split("; ")) == [
        "a waits for 2, which b holds",
        "b waits for 1, which a holds",
    ]


def test_of_many_holders_it_names_some(tree: Tree) -> None:
    with cleared(tree):
        for owner in "abcd":
            stand(tree, "page", "__READ__", data=owner)
        a, b, c = (f"{owner}, for N s" for owner in "abc")
        assert why("page").startswith(f"page is held by 4: {a}; {b}; {c}; 1 more. Nobody")
    with label("mail"), zk_semaphore("mail", 3):
        assert why("mail").startswith("1 of 3 permits of mail are held: ")


@pytest.mark.parametrize(
    ("hosts", "crowd"),
    [("aaaaab", "5 of them: a:7 (GET /)"), ("abcdef", "6 of them: GET /"), ("abc", "")],
)
def test_it_names_those_who_make_most_of_a_long_queue(tree: Tree, hosts: str, crowd: str) -> None:
    with cleared(tree):
        stand(tree, "key", data="holder")
        for host in hosts:
            stand(tree, "key", data=somebody(host, "GET /"))
        (said,) = re.findall(r"a:7 \(GET /\)\. (.*)No deadlock", why("key"))
    assert said.rstrip(" .") == crowd


def test_it_says_when_a_lease_ends() -> None:
    lease = zk_lease("key", 60, owner="export")
    lease.acquire()
    assert re.search(r"by export \(.*\), for N s, until 20.* unless renewed \(a lease", why("key"))
    lease.release()


@pytest.mark.django_db
def test_it_says_who_has_lost_the_lock_in_this_hour(set_options: SetOptions) -> None:
    set_options(HISTORY=10)
    for kind, hours in {"lost": 2, "broken": 0, "held": 0}.items():
        at, who = now() - timedelta(hours=hours), {"hostname": "web1", "pid": 7, "owner": kind}
        LockEvent.objects.create(
            using="default", key="key", name="key", kind=kind, at=at, detail="So it was.", **who
        )
    with zk_lock("key"):
        assert re.search(r"\nweb1:7 \(broken\) lost it at [^\n]*\. So it was\.\n$", why("key"))
    status, _, errors = run("why", "key")
    assert (status, "web1:7 (broken)" in errors) == (1, True)
    LockEvent.objects.filter(kind="broken").delete()
    assert "lost" not in run("why", "key")[2]


def test_of_a_free_lock_there_is_nothing_to_say() -> None:
    status, out, errors = run("why", "key")
    assert (status, out) == (1, "")
    assert "Nobody holds or waits for 'key'" in errors


def test_it_counts_the_tasks_that_wait_for_their_turn(tree: Tree) -> None:
    draw_ticket(tree, "stock:42")
    said = "Nobody holds stock:42. 1 Celery task waits for its turn. No deadlock.\n"
    assert why("stock:42") == said
    draw_ticket(tree, "stock:42")
    with cleared(tree), zk_lock("stock:42"):
        stand(tree, "stock:42")
        said = "2 Celery tasks wait for their turn."
        assert re.search(rf" 1 waits behind it, [^.]*\. {said} No deadlock", why("stock:42"))
