"""Asking and breaking: who may, what is said before, and that just the node shown is meant."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.test import Client

from distlock import LockLost, zk_lease, zk_lock, zk_semaphore
from distlock.locks.actions import Target
from tests.admin.tools import LIST, address, markup, of, rows, said, signed
from tests.inspection.tools import cleared, stand, the_lock
from tests.kit.helpers import eventually
from tests.kit.losses import await_own_watch
from tests.kit.tools import PATIENCE, MakeOwner, Tree

if TYPE_CHECKING:
    from distlock_chaos.proxy import TcpProxy
    from tests.admin.tools import MakeOperator

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

ACTIONS = ["revoke", "break"]


def form(operator: Client, key: str, action: str) -> dict[str, str]:
    """What the confirmation for the holder of a key would send."""
    (holder,) = the_lock(key).holders
    return {"node": signed(operator.get(of(holder, key, action)))}


# --- what it does --------------------------------------------------------------------------------


def test_a_broken_holder_is_told_and_the_next_one_gets_the_lock(
    tree: Tree, operator: Client, make_owner: MakeOwner
) -> None:
    lock, rival = zk_lock("key"), make_owner()
    hold = lock.__enter__()
    await_own_watch(tree, hold)
    got = rival.submit(zk_lock("key", using="other").acquire, timeout=3 * PATIENCE)
    tree.await_line("key", 2)
    (holder,) = the_lock("key").holders
    confirmation = operator.get(of(holder, "key", "break"))
    assert f"Process {holder.participant.pid}" in said(confirmation)
    assert "Next in the queue, and the holder at once:" in said(confirmation)
    answer = operator.post(address("key", "break"), {"node": signed(confirmation)}, follow=True)
    assert answer.redirect_chain == [(address("key"), 302)]
    assert "Broke the lock of " in said(answer)
    assert got.result(PATIENCE)
    eventually(lambda: hold.lost, PATIENCE)
    with pytest.raises(LockLost):
        lock.__exit__(None, None, None)
    rival.now(zk_lock("key", using="other").release)


def test_one_who_is_asked_hears_it(operator: Client) -> None:
    asked = Event()
    with zk_lock("key", on_revoke=lambda _: asked.set()):
        answer = operator.post(address("key", "revoke"), form(operator, "key", "revoke"))
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
            operator.post(address("stock:1", action), form(operator, "stock:1", action))
    asked, broken = LogEntry.objects.order_by("pk")
    assert (asked.action_flag, broken.action_flag) == (CHANGE, DELETION)
    for entry in (asked, broken):
        assert entry.user.get_username() == "operator"
        assert entry.object_repr == "stock:1"
        assert entry.get_admin_url() == address("stock:1")
    node = f"({path}, token {token})."
    assert asked.get_change_message() == f"Asked o1 to release stock:1 {node}"
    assert broken.get_change_message() == f"Broke the lock of o1 on stock:1 {node}"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("action", ACTIONS)
def test_the_intent_is_on_record_before_anything_is_done(
    tree: Tree, operator: Client, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def crash(_: Target) -> bool:
        raise RuntimeError

    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    for method in ("ask_to_release", "break_it"):
        monkeypatch.setattr(Target, method, crash)
    with cleared(tree):
        stand(tree, "key", data="o1")
        sent = form(operator, "key", action)
        with pytest.raises(RuntimeError):
            operator.post(address("key", action), sent)
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
        sent = form(operator, "key", action)
        monkeypatch.setattr(LogEntry.objects, "create", refuse)
        with pytest.raises(DatabaseError):
            operator.post(address("key", action), sent)
        assert tree.client.get(path)[0] == b"10.0.0.7"


@pytest.mark.parametrize("action", ACTIONS)
def test_a_second_time_it_was_already_gone(tree: Tree, operator: Client, action: str) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        sent = form(operator, "key", action)
        tree.client.delete(path)
        stand(tree, "key")
        for _ in range(2):
            answer = operator.post(address("key", action), sent, follow=True)
            assert '<li class="warning">' in markup(answer)
            assert "Already gone from key, so nothing was done: " in said(answer)
        assert tree.line("key")
    assert not LogEntry.objects.exists()


def test_a_node_made_anew_in_the_same_place_is_left_alone(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        sent = form(operator, "key", "break")
        link = of(the_lock("key").holders[0], "key", "break")
        tree.client.delete(path)
        tree.client.create(path, b"10.0.0.8")
        assert "Already gone" in said(operator.post(address("key", "break"), sent, follow=True))
        assert tree.client.exists(path)
        assert "has left already" in said(operator.get(link, follow=True))


def test_a_waiter_can_be_removed_from_the_queue(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        first, second, third = (stand(tree, "key") for _ in range(3))
        waiter = the_lock("key").waiters[0]
        confirmation = operator.get(of(waiter, "key", "break"))
        assert 'value="Remove from the queue"' in markup(confirmation)
        assert "It loses its place in the queue." in said(confirmation)
        operator.post(address("key", "break"), {"node": signed(confirmation)})
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
    assert operator.get(ask).status_code == 404
    confirmation = operator.get(end)
    sent = {"node": signed(confirmation)}
    asked = operator.post(address("@leases/export", "revoke"), sent, follow=True)
    assert "nothing was done" in said(asked)
    assert lease.holder() is not None
    operator.post(address("@leases/export", "break"), sent)
    assert lease.holder() is None


def test_one_lease_of_a_semaphore_is_broken_and_the_others_stay(operator: Client) -> None:
    semaphore = zk_semaphore("key", 3)
    semaphore.acquire(leases=3)
    holder = the_lock("key").holders[1]
    confirmation = operator.get(of(holder, "key", "break"))
    assert "2 other participants go on holding it." in said(confirmation)
    operator.post(address("key", "break"), {"node": signed(confirmation)})
    left = [one.participant.path for one in the_lock("key").holders]
    assert len(left) == 2
    assert holder.participant.path not in left
    with suppress(LockLost):  # where this process has heard of it
        semaphore.release(leases=3)


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
    operator: Client,
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
                sent = form(operator, "key", action)
                assert browser.post(address("key", action), sent).status_code == 403
        assert tree.client.get(path)[0] == b"10.0.0.7"
    assert not LogEntry.objects.exists()


def test_who_is_not_logged_in_is_sent_to_log_in(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        sent = form(operator, "key", "break")
        for browser in (Client(), Client(enforce_csrf_checks=True)):
            for page in (LIST, address("key"), f"{LIST}?_fragment=1"):
                assert browser.get(page)["Location"].startswith("/admin/login/?next=")
        assert Client().post(address("key", "break"), sent).status_code == 302
        assert tree.client.exists(path)


def test_a_post_from_another_site_is_refused(tree: Tree, operator: Client) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.get(username="operator"))
    with cleared(tree):
        path = stand(tree, "key")
        sent = form(operator, "key", "break")
        assert browser.post(address("key", "break"), sent).status_code == 403
        assert tree.client.exists(path)


# --- what was not made by the page ----------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "forged", "a:b:c"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_forged_form_is_refused(tree: Tree, operator: Client, action: str, text: str) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        edited = form(operator, "key", action)["node"].replace(":", "x:", 1)
        for node in (text, edited):
            answer = operator.post(address("key", action), {"node": node})
            assert answer.status_code == 400
            assert "was not made by this page" in said(answer)
        assert tree.client.get(path)[0] == b"10.0.0.7"
    assert not LogEntry.objects.exists()


def test_the_form_for_one_lock_is_no_form_for_another(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        stand(tree, "key")
        stand(tree, "other")
        sent = form(operator, "other", "break")
        assert operator.post(address("key", "break"), sent).status_code == 400
        elsewhere = address("other", "break", using="other")
        assert operator.post(elsewhere, sent).status_code == 400
        assert tree.line("other")


def test_nothing_outside_of_the_namespace_is_touched(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        stand(tree, "key")
        (holder,) = the_lock("key").holders
        target = Target.of("default", the_lock("key"), holder)
        for path in ("/zookeeper/quota", f"{tree.namespace}/other/x", tree.path("key")):
            sent = {"node": replace(target, path=path).sign()}
            assert operator.post(address("key", "break"), sent).status_code == 400


# --- without an answer ----------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
def test_without_an_answer_the_outcome_is_recorded_as_unknown(
    broken_link: TcpProxy, tree: Tree, operator: Client, action: str
) -> None:
    with cleared(tree):
        stand(tree, "key")
        sent = form(operator, "key", action)
        broken_link.black_hole()
        answer = operator.post(address("key", action), sent)
        assert answer.status_code == 200
        assert "it may be done or not" in said(answer)
        assert 'role="alert"' in markup(answer)
        assert LogEntry.objects.get().change_message.endswith("outcome unknown.")
        broken_link.pass_through()
