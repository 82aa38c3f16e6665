"""Asking and breaking: who may, what is said before, and that just the node shown is meant."""

from __future__ import annotations

import html
import os
import re
import socket
from threading import Event
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.test import Client

from distlock import LockUnavailable, zk_lease, zk_lock, zk_semaphore
from distlock.locks import actions
from distlock_chaos.proxy import TcpProxy
from tests.admin.tools import LIST, MakeOperator, address, markup, of, rows, said
from tests.inspection.tools import cleared, stand, the_lock
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

ACTIONS = ["revoke", "break"]
#: The functions that do it.
DONE_BY = {"revoke": "revoke", "break": "break_node"}


def form(key: str, action: str) -> str:
    """The address of the confirmation for the holder of a key, which its form is sent to, too."""
    (holder,) = the_lock(key).holders
    return of(holder, key, action)


# --- what it does --------------------------------------------------------------------------------


def test_one_who_is_asked_hears_it(operator: Client) -> None:
    asked = Event()
    with zk_lock("key", on_revoke=lambda _: asked.set()):
        answer = operator.post(form("key", "revoke"))
        assert answer.status_code == 302
        assert asked.wait(PATIENCE)
        page = operator.get(address("key"))
        assert [state for state, _ in rows(page)] == ["holds"]
        assert "asked to release" in said(page)
        assert f"Process {os.getpid()}" in said(page)


def test_it_is_logged_who_did_what_to_whom(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        path = stand(tree, "stock:1", data="o1")
        token = the_lock("stock:1").holders[0].participant.token
        for action in ACTIONS:
            operator.post(form("stock:1", action), {"reason": " it is stuck\n"})
    asked, broken = LogEntry.objects.order_by("pk")
    assert (asked.action_flag, broken.action_flag) == (CHANGE, DELETION)
    for entry in (asked, broken):
        assert entry.user.get_username() == "operator"
        assert entry.object_repr == "stock:1"
        assert entry.get_admin_url() == address("stock:1")
    node = f"({path}, token {token}). Reason: it is stuck"
    assert asked.get_change_message() == f"Asked o1 to release stock:1 {node}"
    assert broken.get_change_message() == f"Broke the lock of o1 on stock:1 {node}"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("action", ACTIONS)
def test_the_intent_is_on_record_before_anything_is_done(
    tree: Tree, operator: Client, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def crash(*_: object, **__: object) -> bool:
        raise RuntimeError

    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    monkeypatch.setattr(actions, DONE_BY[action], crash)
    with cleared(tree):
        stand(tree, "key", data="o1")
        with pytest.raises(RuntimeError):
            operator.post(form("key", action))
    entry = LogEntry.objects.get()
    assert "o1" in entry.change_message
    assert entry.change_message.endswith("outcome unknown.")


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_is_done_without_a_record(
    tree: Tree, operator: Client, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DatabaseError

    with cleared(tree):
        path = stand(tree, "key")
        monkeypatch.setattr(LogEntry.objects, "create", refuse)
        with pytest.raises(DatabaseError):
            operator.post(form("key", action))
        assert tree.client.get(path)[0] == b"10.0.0.7"


@pytest.mark.parametrize("action", ACTIONS)
def test_a_second_time_it_was_already_gone(tree: Tree, operator: Client, action: str) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        sent = form("key", action)
        tree.client.delete(path)
        stand(tree, "key")
        for send in (operator.get, operator.post):
            answer = send(sent, follow=True)
            assert '<li class="warning">' in markup(answer)
            assert "That participant has left already." in said(answer)
        assert tree.line("key")
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("action", ACTIONS)
def test_one_who_leaves_meanwhile_is_not_logged(
    tree: Tree, operator: Client, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(actions, DONE_BY[action], lambda *_, **__: False)
    with cleared(tree):
        stand(tree, "key", data="o1")
        answer = operator.post(form("key", action), follow=True)
        assert "Already gone from key, so nothing was done: o1." in said(answer)
    assert not LogEntry.objects.exists()


def test_a_waiter_can_be_removed_from_the_queue(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        first, second, third = (stand(tree, "key") for _ in range(3))
        waiter = the_lock("key").waiters[0]
        confirmation = operator.get(of(waiter, "key", "break"))
        assert 'value="Remove from the queue"' in markup(confirmation)
        assert "It loses its place in the queue." in said(confirmation)
        operator.post(of(waiter, "key", "break"))
        assert (
            "operator : Removed a peer that does not say who it is from the queue of key"
            in said(operator.get(address("key")))
        )
        assert tree.line("key") == [path.rpartition("/")[2] for path in (first, third)]
        assert not tree.client.exists(second)


def test_a_lease_can_be_broken_and_not_asked(operator: Client) -> None:
    lease = zk_lease("export", 600, owner="nightly")
    assert lease.acquire()
    page = markup(operator.get(address("@leases/export")))
    assert 'data-action="break"' in page
    assert 'data-action="revoke"' not in page
    token = lease.holder().token  # type: ignore[union-attr]  # it is held
    ask, end = (
        address("@leases/export", action, node="", token=token) for action in ("revoke", "break")
    )
    for send in (operator.get, operator.post):
        assert send(ask).status_code == 404
    assert lease.holder() is not None
    operator.post(end)
    assert lease.holder() is None


def test_a_limit_is_set_for_all_after_a_confirmation_and_unset(
    tree: Tree, operator: Client, make_operator: MakeOperator
) -> None:
    other = make_operator("view_lock", "revoke_lock", "break_lock", name="other")
    change = address("mail", "limit")
    with cleared(tree):
        with zk_semaphore("mail", 3):
            assert change in markup(operator.get(address("mail")))
            assert change not in markup(other.get(address("mail")))
            assert other.post(change, {"limit": 1}).status_code == 403
            assert "1 of 3 held, 0 wait" in said(operator.get(change))
            assert operator.post(change, {"limit": 0}).status_code == 200
            assert the_lock("mail").limit == 3
            assert operator.post(change, {"limit": 1})["Location"] == address("mail")
            assert not zk_semaphore("mail", 3).acquire(timeout=0)
        eventually(lambda: not the_lock("mail").holding, PATIENCE)
        page = said(operator.get(address("mail")))
        assert "0 of 1 held, 0 wait limit set at run time" in page
        assert "operator : Set the limit of mail to 1." in page
        assert "0 of 1" in said(operator.get(LIST))
        operator.post(change, {"unset": "Unset it"})
        assert zk_semaphore("mail", 3).acquire(timeout=0, leases=3)
        zk_semaphore("mail", 3).release(3)
        assert operator.post(address("@leases", "limit"), {"limit": 1}).status_code == 404
    assert [entry.action_flag for entry in LogEntry.objects.all()] == [CHANGE, CHANGE]


def test_a_process_is_asked_to_release_all_that_it_holds(
    tree: Tree, operator: Client, make_operator: MakeOperator
) -> None:
    process = f"{socket.gethostname()}:{os.getpid()}"
    asked: list[str] = []
    search = {"q": process}

    def lock(key: str) -> Any:
        return zk_lock(key, on_revoke=lambda _: asked.append(key))

    with cleared(tree), lock("a"), lock("b"):
        stand(tree, "of-a-peer")
        link = re.search(
            r'id="distlock-ask-all" href="([^"]+)"', markup(operator.get(LIST, search))
        )
        assert link
        ask = html.unescape(link[1])
        viewer = make_operator("view_lock", name="viewer")
        assert "distlock-ask-all" not in markup(viewer.get(LIST, search))
        assert viewer.post(ask).status_code == 403
        assert "of-a-peer" not in said(operator.get(ask))
        assert asked == []
        answer = operator.post(ask, {"reason": "a deploy"}, follow=True)
        eventually(lambda: sorted(asked) == ["a", "b"], PATIENCE)
        assert said(answer).count("Reason: a deploy") == 2
    assert LogEntry.objects.filter(change_message__endswith="Reason: a deploy").count() == 2


# --- who may -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "powers",
    [
        ((), 403, {"revoke": 403, "break": 403}),
        (("view_lock",), 200, {"revoke": 403, "break": 403}),
        (("view_lock", "revoke_lock"), 200, {"revoke": 200, "break": 403}),
        (("view_lock", "break_lock"), 200, {"revoke": 403, "break": 200}),
        (("revoke_lock", "break_lock"), 403, {"revoke": 403, "break": 403}),
    ],
    ids=["nothing", "view", "revoke", "break", "not view"],
)
def test_each_needs_its_permission(
    tree: Tree,
    make_operator: MakeOperator,
    powers: tuple[tuple[str, ...], int, dict[str, int]],
) -> None:
    permissions, sees, acts = powers
    browser = make_operator(*permissions, name="other")
    with cleared(tree):
        path = stand(tree, "key")
        (holder,) = the_lock("key").holders
        assert browser.get(LIST).status_code == sees
        assert browser.get(f"{LIST}?_fragment=1").status_code == sees
        assert browser.get(address("key")).status_code == sees
        for action, expected in acts.items():
            assert browser.get(of(holder, "key", action)).status_code == expected
            if expected == 403:
                assert browser.post(of(holder, "key", action)).status_code == 403
        assert tree.client.get(path)[0] == b"10.0.0.7"
    assert not LogEntry.objects.exists()


def test_who_is_not_logged_in_is_sent_to_log_in(tree: Tree) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        for browser in (Client(), Client(enforce_csrf_checks=True)):
            for page in (LIST, address("key"), f"{LIST}?_fragment=1"):
                assert browser.get(page)["Location"].startswith("/admin/login/?next=")
        assert Client().post(form("key", "break")).status_code == 302
        assert tree.client.exists(path)


@pytest.mark.usefixtures("operator")
def test_a_post_from_another_site_is_refused(tree: Tree) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.get(username="operator"))
    with cleared(tree):
        path = stand(tree, "key")
        assert browser.post(form("key", "break")).status_code == 403
        assert tree.client.exists(path)


# --- what the page does not link to ---------------------------------------------------------------


def test_only_a_participant_of_the_lock_is_hit(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        path, other = stand(tree, "key"), stand(tree, "other")
        tree.client.create(f"{tree.path('key')}/beside")
        name, token = other.rpartition("/")[2], the_lock("other").holders[0].participant.token
        beside = tree.client.exists(f"{tree.path('key')}/beside").czxid
        forged = [
            ("", ""),
            (path.rpartition("/")[2], token),
            (name, token),
            (f"../other/{name}", token),
            ("beside", beside),
            ("\x00", token),
        ]
        for node, of_node in forged:
            sent = address("key", "break", node=node, token=of_node)
            assert "has left already" in said(operator.post(sent, follow=True))
        assert operator.post(address("other", "break", using="other", node=name)).status_code == 302
        for one in (path, other, f"{tree.path('key')}/beside"):
            assert tree.client.exists(one)
    assert not LogEntry.objects.exists()


# --- without an answer ----------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
def test_without_an_answer_the_outcome_is_recorded_as_unknown(
    tree: Tree, operator: Client, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def fail(*_: object, **__: object) -> bool:
        raise LockUnavailable("no answer")

    monkeypatch.setattr(actions, DONE_BY[action], fail)
    with cleared(tree):
        stand(tree, "key")
        answer = operator.post(form("key", action))
        assert answer.status_code == 200
        assert "it may be done or not" in said(answer)
        assert 'role="alert"' in markup(answer)
    assert LogEntry.objects.get().change_message.endswith("outcome unknown.")


@pytest.mark.parametrize("action", ACTIONS)
def test_what_cannot_be_read_is_not_acted_on(
    broken_link: TcpProxy, tree: Tree, operator: Client, action: str
) -> None:
    with cleared(tree):
        stand(tree, "key")
        sent = form("key", action)
        broken_link.black_hole()
        answer = operator.post(sent)
        assert answer.status_code == 200
        assert "The locks cannot be read." in said(answer)
        broken_link.pass_through()
    assert not LogEntry.objects.exists()
