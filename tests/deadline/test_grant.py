"""A grant without a lease is none, and nothing is committed under a lost lock.

Session and lease are checked again before acquire returns, and before COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from distlock import LockLost, LockUnavailable, zk_lock, zk_locked
from distlock.contenders.waiting import Attempt
from distlock.owner.owner import current
from distlock.queue.machine import Machine
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import Tree, await_connection, expire, forgets_all

KEY = "key"
T = 4.0

pytestmark = pytest.mark.usefixtures("tree")

Shift = Callable[[float], None]


@pytest.fixture
def stopped_before(monkeypatch: pytest.MonkeyPatch, shift_clock: Shift) -> Callable[..., None]:
    """Lets the time of a lease go by, once, just before a step."""

    def stop(owner: type, name: str, *, when: Callable[[Any], bool] = lambda _: True) -> None:
        step = getattr(owner, name)

        def stopped(self: Any, *args: Any) -> Any:
            if when(self):
                monkeypatch.setattr(owner, name, step)
                shift_clock(T)
            return step(self, *args)

        monkeypatch.setattr(owner, name, stopped)

    return stop


def test_a_list_that_comes_after_the_lease_grants_only_with_a_new_proof(
    stopped_before: Callable[..., None], requests: list[str]
) -> None:
    stopped_before(Machine, "_have_turn")
    with zk_lock(KEY) as hold:
        # Writes, since a deposed leader would answer a sync, and looks at the line again.
        assert "Transaction" in requests
        assert requests.count("GetChildren") >= 2
        hold.check()
        assert hold.valid_for() > 0


def test_a_lease_that_runs_out_after_the_grant_is_noticed_before_acquire_returns(
    tree: Tree, stopped_before: Callable[..., None]
) -> None:
    stopped_before(Attempt, "outcome")
    with pytest.raises(LockUnavailable):
        zk_lock(KEY).acquire()
    assert not zk_lock(KEY).held
    tree.await_line(KEY, 0)
    forgets_all(session_for())
    with zk_lock(KEY) as hold:
        hold.verify()


# --- transactions --------------------------------------------------------------------------------


@pytest.fixture
def notes(transactional_db: None) -> Iterator[Callable[[], list[str]]]:  # noqa: ARG001
    """A table in SQLite; returns what has been committed to it."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE notes (text varchar(20))")

    def committed() -> list[str]:
        assert not connection.in_atomic_block
        with connection.cursor() as cursor:
            cursor.execute("SELECT text FROM notes")
            return [text for (text,) in cursor.fetchall()]

    yield committed
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE notes")


def write(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO notes VALUES (%s)", [text])


def lose_the_lock(zookeeper: ZooKeeper) -> None:
    ((_, held),) = current().held.items()
    expire(zookeeper.hosts, session_for())
    eventually(lambda: held.hold.lost)


def test_a_transaction_inside_the_lock_is_not_committed_once_the_lock_is_lost(
    zookeeper: ZooKeeper, notes: Callable[[], list[str]]
) -> None:
    with zk_lock(KEY, atomic=True):
        write("held")
    with pytest.raises(LockLost), zk_lock(KEY, atomic=True):  # noqa: PT012
        write("lost")
        lose_the_lock(zookeeper)
    assert notes() == ["held"]
    assert not zk_lock(KEY).held


def test_a_function_locked_with_a_transaction_is_not_committed_either(
    zookeeper: ZooKeeper, notes: Callable[[], list[str]]
) -> None:
    @zk_locked("of-<name>", atomic=True)
    def note(name: str, *, lose: bool) -> None:
        write(name)
        if lose:
            lose_the_lock(zookeeper)

    note("held", lose=False)
    with pytest.raises(LockLost):
        note("lost", lose=True)
    assert notes() == ["held"]


def view_of(zookeeper: ZooKeeper) -> Callable[..., HttpResponse]:
    @zk_locked("of-<name>")
    def view(_request: HttpRequest, name: str) -> HttpResponse:
        write(name)
        if name == "lost":
            lose_the_lock(zookeeper)
        return HttpResponse("written")

    return view


class Urls:
    """A URL configuration."""

    def __init__(self, view: Callable[..., HttpResponse]) -> None:
        self.urlpatterns = [path("<name>", view)]


def test_a_view_under_atomic_requests_is_not_committed_either(
    zookeeper: ZooKeeper, notes: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    await_connection()
    with override_settings(ROOT_URLCONF=Urls(view_of(zookeeper))):
        client = Client(raise_request_exception=True)
        assert client.get("/held").status_code == 200
        with pytest.raises(LockLost):
            client.get("/lost")
    assert notes() == ["held"]
