"""`manage.py distlock revoke` and `break`: on whom, and only after a yes."""

from __future__ import annotations

import os
import pty
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.management import get_system_username

from distlock import signals, zk_lease, zk_lock, zk_semaphore
from distlock.locks import actions, revocation
from tests.commands.tools import run
from tests.inspection.tools import cleared, stand
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


@contextmanager
def typing(text: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody at a terminal types this."""
    ours, theirs = pty.openpty()
    os.write(ours, text.encode())
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        yield
    os.close(ours)


def test_a_holder_is_asked_to_leave() -> None:
    asked: list[str] = []
    with zk_lock("key", on_revoke=lambda lock: asked.append(lock.key)) as hold:
        status, out, errors = run("revoke", "key")
        assert (status, errors) == (0, "")
        assert out.startswith("Asked: ")
        assert hold.path in out
        assert eventually(lambda: asked, PATIENCE) == ["key"]
        assert zk_lock("key").held


def test_a_waiter_can_be_named(tree: Tree) -> None:
    with cleared(tree):
        first, second = (stand(tree, "key") for _ in range(2))
        assert run("revoke", "key", "--node", second.rpartition("/")[2])[0] == 0
        assert tree.client.get(second)[0] == b"__REVOKE__"
        assert tree.client.get(first)[0] != b"__REVOKE__"
        assert run("break", "key", "-y", "--node", second)[0] == 0
        assert tree.line("key") == [first.rpartition("/")[2]]


def test_a_lease_is_not_asked_for_its_data_would_be_gone() -> None:
    lease = zk_lease("key", 600, owner="me")
    assert lease.acquire()
    status, out, errors = run("revoke", "key")
    assert status == 1
    assert "is a lease" in out
    assert "Nobody was asked" in errors
    assert lease.holder() is not None
    assert run("break", "key", "-y")[0] == 0
    assert lease.holder() is None


@pytest.mark.parametrize("command", [["revoke"], ["break", "-y"]], ids=["revoke", "break"])
def test_where_nobody_is_the_status_is_1(tree: Tree, command: list[str]) -> None:
    status, _, errors = run(*command, "key")
    assert status == 1
    assert "Nobody is there holding it: 'key'" in errors
    with cleared(tree):
        stand(tree, "key")
        status, _, errors = run(*command, "key", "--node", "no")
        assert status == 1
        assert "on the node 'no'" in errors
        assert len(tree.line("key")) == 1


@pytest.mark.parametrize("command", [["revoke"], ["break", "-y"]], ids=["revoke", "break"])
def test_of_several_holders_one_is_named_or_all_are_meant(tree: Tree, command: list[str]) -> None:
    with cleared(tree):
        readers = [stand(tree, "key", "__READ__") for _ in range(2)]
        status, out, errors = run(*command, "key")
        assert (status, out) == (2, "")
        assert "2 are meant" in errors
        assert all(path in errors for path in readers)
        assert len(tree.line("key")) == 2
        status, out, _ = run(*command, "key", "--all")
        assert status == 0
        assert [line.split()[-1] for line in out.splitlines()] == readers


def test_breaking_wants_a_terminal_or_a_yes(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        with open(os.devnull) as nowhere:  # noqa: PTH123 - a stream like another
            monkeypatch.setattr(sys, "stdin", nowhere)
            status, _, errors = run("break", "key")
        assert status == 2
        assert "-y" in errors
        assert tree.client.exists(path)
        for answer in ("n\n", "\n", "no\n", "\x04"):
            with typing(answer, monkeypatch):
                status, _, errors = run("break", "key")
            assert status == 1
            assert f"a peer with node {path.rpartition('/')[2]} holds 'key'" in errors
            assert "Nothing was done" in errors
            assert tree.client.exists(path)
        with typing("y\n", monkeypatch):
            status, out, errors = run("break", "key")
        assert status == 0
        assert out == f"Broken: a peer with node {path.rpartition('/')[2]} on {path}\n"
        assert not tree.client.exists(path)


# --- the record -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["revoke"], ["break", "-y"]], ids=["revoke", "break"])
def test_the_log_names_the_operator_the_node_and_the_reason(
    tree: Tree, caplog: pytest.LogCaptureFixture, command: list[str]
) -> None:
    caplog.set_level("WARNING", "distlock.audit")
    with cleared(tree):
        path = stand(tree, "key")
        assert run(*command, "key", "--reason", "stuck\nfor hours")[0] == 0
    intent, outcome = (record.getMessage() for record in caplog.records)
    operator = f"{get_system_username()}@{socket.gethostname()}"
    assert intent.startswith(f"{operator} is about to ")
    assert intent.endswith("Reason: stuck\N{REPLACEMENT CHARACTER}for hours")
    assert outcome.startswith(f"{operator} tried to ")
    assert outcome.endswith(": done.")
    assert path in intent
    assert path in outcome


@pytest.mark.parametrize("command", [["revoke"], ["break", "-y"]], ids=["revoke", "break"])
def test_a_signal_tells_what_an_operator_did_and_not_what_was_too_late(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    told: list[dict[str, Any]] = []

    def receive(**facts: Any) -> None:
        told.append(facts)

    signals.operator_acted.connect(receive)
    with cleared(tree):
        path = stand(tree, "key", data="o1")
        assert run(*command, "key", "--reason", "stuck")[0] == 0
        done_by = {"break": "break_node"}.get(command[0], command[0])
        monkeypatch.setattr(actions, done_by, lambda *_, **__: False)
        stand(tree, "key")
        assert run(*command, "key", "--all")[0] == 1
    signals.operator_acted.disconnect(receive)
    (facts,) = told
    assert (facts["action"], facts["reason"], facts["key"]) == (command[0], "stuck", "key")
    assert (facts["target"].participant.path, facts["target"].who) == (path, "o1")


def test_who_has_gone_while_it_was_asked_is_not_broken(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cleared(tree):
        path = stand(tree, "key")

        def too_late(*args: object, **options: object) -> bool:
            tree.client.delete(path)
            stand(tree, "key")
            return revocation.break_node(*args, **options)  # type: ignore[arg-type]  # as they came

        monkeypatch.setattr(actions, "break_node", too_late)
        status, out, _ = run("break", "key", "-y")
        assert status == 1
        assert out.startswith("Not broken, for it has gone meanwhile")
        assert len(tree.line("key")) == 1


def test_a_limit_is_set_for_all_shown_and_unset(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    with cleared(tree), caplog.at_level("WARNING", "distlock.audit"):
        with zk_semaphore("mail", 3):
            assert run("limit", "mail", "1", "--reason", "a complaint")[0] == 0
            assert not zk_semaphore("mail", 3).acquire(timeout=0)
            shown = run("show", "mail")[1]
        assert "mail: semaphore, 1 of 1 held, 0 waiting" in shown
        assert "set at run time" in shown
        row = ["mail", "semaphore", "0/1", "0"]  # also while nobody is there
        eventually(lambda: run("list")[1].splitlines()[1].split() == row, PATIENCE)
        assert run("limit", "mail", "--unset")[0] == 0
        assert zk_semaphore("mail", 3).acquire(timeout=0, leases=3)
        zk_semaphore("mail", 3).release(3)
        assert "'0' is no number of permits from 1 up" in run("limit", "mail", "0")[2]
    intent, outcome, *_ = (record.getMessage() for record in caplog.records)
    assert intent.endswith("is about to limit mail in default: 1. Reason: a complaint")
    assert outcome.endswith("tried to limit mail in default: 1: done.")


def test_a_limit_for_the_key_of_another_kind_of_lock_is_questioned(tree: Tree) -> None:
    with cleared(tree), zk_lock("nightly"):
        assert ": mutex." in run("limit", "nightly", "3")[2]
        assert run("limit", "nightly", "--unset")[2] == ""
        assert "semaphore" not in run("list")[1]
        assert run("limit", "unused", "3")[2] == ""
        with zk_semaphore("nightly", 3):
            assert run("limit", "nightly", "3")[2] == ""
            assert run("limit", "nightly", "--unset")[0] == 0
