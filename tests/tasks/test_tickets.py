"""``on_busy="queue"``: tasks that were put off are served first come, first served."""

from __future__ import annotations

import json
import threading
from io import StringIO
from typing import Any

import pytest
from celery import Celery, states
from celery.signals import before_task_publish
from django.core.management import call_command
from kombu.exceptions import OperationalError
from pytest_django import Settings

from distlock import LimitReached, LockBusy, zk_limited, zk_locked, zk_semaphore
from distlock.celery import tickets
from distlock.celery.put_off import HEADER
from distlock.celery.tickets import sweep_tickets
from distlock.keys.templates import znode_name
from distlock.session.registry import session_for
from distlock_chaos.ports import free_ports
from tests.kit.celery_tools import PATIENCE
from tests.kit.helpers import eventually
from tests.kit.tools import Owner, Tree
from tests.tasks.tools import Traced
from tests.testproject.elsewhere import held_elsewhere, in_line

pytestmark = pytest.mark.engines("zookeeper", "redis")


#: The header of a task that comes again.
AGAIN = {HEADER: {"busy": 1, "away": 0, "since": 1}}


@pytest.fixture
def refresh(app: Celery) -> Any:
    """A task that tells who runs, in order."""
    return refreshes(app)


def refreshes(app: Celery, **options: Any) -> Any:
    ran: list[str] = []
    options = {"busy_deadline": None, **options}

    @app.task(shared=False)
    @zk_locked("feed:<feed_id>", on_busy="queue", **options)
    def refresh(feed_id: int, who: str) -> None:
        assert feed_id
        ran.append(who)

    refresh.ran = ran
    return refresh


def run(refresh: Any, who: str, headers: Any = None) -> Any:
    return Traced(refresh, 7, who, headers=headers, task_id=who)


def tickets_of(tree: Tree, key: str = "feed:7") -> list[str]:
    """Whose tickets there are for a lock, or else for permits, first come first."""
    names = tree.children(_parent(tree, key)) or tree.children(_parent(tree, key) + "@permits")
    return [name.rpartition("-")[0] for name in sorted(names, key=lambda name: name[-10:])]


def _parent(tree: Tree, key: str) -> str:
    return f"{tree.namespace}/@tickets/{znode_name(key)}"


def ticket_path(tree: Tree, who: str, key: str = "feed:7", *, of: str = "") -> str:
    parent = _parent(tree, key) + of
    (name,) = (name for name in tree.children(parent) if name.startswith(f"{who}-"))
    return f"{parent}/{name}"


def end(tree: Tree, who: str) -> None:
    """Let a ticket's time be over."""
    data = json.dumps({"v": 1, "ttl": 0.001}).encode()
    ended = tree.client.set(ticket_path(tree, who), data).mtime + 1
    clock = f"{tree.namespace}/@tickets"
    eventually(lambda: tree.client.set(clock, b"").mtime > ended, PATIENCE, "the end of a ticket")


# --- the order -----------------------------------------------------------------------------------


def test_a_free_lock_is_taken_without_a_ticket(refresh: Any, tree: Tree) -> None:
    assert run(refresh, "a").state == states.SUCCESS
    assert not tree.children(f"{tree.namespace}/@tickets")


def test_whoever_comes_again_first_only_the_first_in_line_is_served(
    refresh: Any, tree: Tree
) -> None:
    with held_elsewhere("feed:7", work="the test"):
        for who in "abc":
            assert run(refresh, who).state == states.RETRY
        assert tickets_of(tree) == ["a", "b", "c"]
    for who, state in [("c", "RETRY"), ("new", "RETRY"), ("b", "RETRY"), ("a", "SUCCESS")]:
        assert run(refresh, who, AGAIN if who != "new" else None).state == state
    eventually(lambda: tickets_of(tree) == ["b", "c", "new"])
    for who in ("b", "c", "new"):
        assert run(refresh, who, AGAIN).state == states.SUCCESS
    assert refresh.ran == ["a", "b", "c", "new"]
    # The parents are containers, which the server removes.
    eventually(lambda: not tree.client.exists(f"{tree.namespace}/@tickets"), PATIENCE)


def test_the_nearer_the_front_the_shorter_the_pause(refresh: Any, tree: Tree) -> None:
    with held_elsewhere("feed:7"):
        pauses = [run(refresh, f"t{n:02}").error.when for n in range(12)]
    assert len(tickets_of(tree)) == 12
    for ahead, pause in enumerate(pauses):
        assert 0.25 * max(ahead, 1) <= pause <= 0.5 * max(ahead, 1)
    for n in range(12):
        assert run(refresh, f"t{n:02}", AGAIN).state == states.SUCCESS


def test_a_newcomer_that_is_put_off_says_how_many_are_ahead_and_who_holds(
    refresh: Any, tree: Tree
) -> None:
    with held_elsewhere("feed:7", work="the test"):
        run(refresh, "a")
        error = run(refresh, "b").error.exc
        assert "before this one: 1." in str(error)
        assert "the test" in str(error)
        for who in "ab":
            tree.client.delete(ticket_path(tree, who))


def test_the_first_in_line_waits_in_its_slot_for_its_turn(app: Celery, tree: Tree) -> None:
    refresh = refreshes(app, timeout=PATIENCE)
    with Owner() as first:
        with held_elsewhere("feed:7"):
            waits = first.submit(run, refresh, "a")
            eventually(lambda: tickets_of(tree) == ["a"], PATIENCE, "the first ticket")
            assert run(refresh, "b").state == states.RETRY
            assert tickets_of(tree) == ["a", "b"]
        assert waits.result(PATIENCE).state == states.SUCCESS
    assert run(refresh, "b", AGAIN).state == states.SUCCESS
    assert refresh.ran == ["a", "b"]
    eventually(lambda: not tickets_of(tree))


def test_under_a_limit_as_many_from_the_front_may_go_as_there_are_permits(
    app: Celery, tree: Tree
) -> None:
    ran: list[str] = []

    @app.task(shared=False)
    @zk_limited("feed:<feed_id>", 3, permits=2, on_busy="queue", busy_deadline=None)
    def refresh(feed_id: int, who: str) -> None:
        assert feed_id
        ran.append(who)

    permits = zk_semaphore("feed:7", 3)
    assert permits.acquire(timeout=0, leases=2)
    for who in "abc":
        error = run(refresh, who).error.exc
        assert isinstance(error, LimitReached)
    assert tickets_of(tree) == ["a", "b", "c"]
    permits.release(2)
    assert run(refresh, "b", AGAIN).state == states.RETRY
    permits.limit = 5  # which lets two in
    assert run(refresh, "c", AGAIN).state == states.RETRY
    for who in "bac":
        assert run(refresh, who, AGAIN).state == states.SUCCESS
    assert ran == ["b", "a", "c"]
    eventually(lambda: not tickets_of(tree))


def test_the_lock_and_the_permits_of_a_key_have_lines_of_their_own(
    app: Celery, refresh: Any, tree: Tree
) -> None:
    @app.task(shared=False, name="limited")
    @zk_limited("feed:<feed_id>", 1, on_busy="queue")
    def limited(feed_id: int, who: str) -> str:
        return f"{feed_id} {who}"

    with held_elsewhere("feed:7"):
        assert run(refresh, "a").state == states.RETRY
        assert run(limited, "b").state == states.SUCCESS
        tree.client.delete(ticket_path(tree, "a"))


def test_a_short_hold_is_waited_for_without_a_ticket(refresh: Any, tree: Tree) -> None:
    with Owner() as owner:
        with held_elsewhere("feed:7"):
            one = owner.submit(run, refresh, "a")
            eventually(lambda: in_line("feed:7") == 2, PATIENCE, "the task waits for the lock")
            assert not tickets_of(tree)
        assert one.result(PATIENCE).state == states.SUCCESS


# --- tickets that end ----------------------------------------------------------------------------


def test_a_lost_tasks_ticket_ends_by_its_time_and_the_line_goes_on(
    refresh: Any, tree: Tree
) -> None:
    with held_elsewhere("feed:7"):
        for who in ("lost", "gone", "b"):
            run(refresh, who)
    assert run(refresh, "b", AGAIN).state == states.RETRY
    end(tree, "lost")
    assert run(refresh, "b", AGAIN).state == states.RETRY
    eventually(lambda: tickets_of(tree) == ["gone", "b"])
    end(tree, "gone")
    assert run(refresh, "b", AGAIN).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


def test_a_ticket_that_was_removed_meanwhile_is_drawn_anew(refresh: Any, tree: Tree) -> None:
    with held_elsewhere("feed:7"):
        for who in "ab":
            run(refresh, who)
        tree.client.delete(ticket_path(tree, "a"))
    assert run(refresh, "a", AGAIN).state == states.RETRY
    assert tickets_of(tree) == ["b", "a"]
    for who in "ba":
        assert run(refresh, who, AGAIN).state == states.SUCCESS


def test_a_ticket_that_is_renewed_after_it_was_judged_is_left_alone(
    refresh: Any, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renewed_meanwhile(*_: Any) -> dict[str, float]:
        tree.client.set(ticket_path(tree, "a"), b'{"ttl": 60}')
        return {"ttl": 1e-9}  # which is over

    with held_elsewhere("feed:7"):
        for who in "ab":
            run(refresh, who)
        with monkeypatch.context() as patch:
            patch.setattr(tickets, "read_json", renewed_meanwhile)
            assert run(refresh, "b", AGAIN).state == states.RETRY
        assert tickets_of(tree) == ["a", "b"]
    for who in "ab":
        assert run(refresh, who, AGAIN).state == states.SUCCESS


@pytest.mark.parametrize("data", [b"", b"?", b'{"ttl": true}', b'{"ttl": 1e99}', b'{"ttl": "1"}'])
def test_a_ticket_that_cannot_be_read_ends_too(
    refresh: Any, tree: Tree, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_elsewhere("feed:7"):
        for who in "ab":
            run(refresh, who)
    tree.client.set(ticket_path(tree, "a"), data)
    assert run(refresh, "b", AGAIN).state == states.RETRY
    monkeypatch.setattr(tickets, "LONGEST", 1e-6)
    assert run(refresh, "b", AGAIN).state == states.SUCCESS


def test_the_sweep_removes_what_has_ended_and_nothing_else(refresh: Any, tree: Tree) -> None:
    assert sweep_tickets() == 0
    with held_elsewhere("feed:7"):
        for who in "abc":
            run(refresh, who)
    end(tree, "b")
    out = StringIO()
    call_command("distlock", "sweep", stdout=out)
    assert out.getvalue().endswith("Removed 1 tickets of tasks that did not come again.\n")
    assert sweep_tickets() == 0
    assert tickets_of(tree) == ["a", "c"]
    for who in "ac":
        assert run(refresh, who, AGAIN).state == states.SUCCESS


# --- tickets that are given back -----------------------------------------------------------------


@pytest.mark.parametrize("options", [{"busy_limit": 1}, {"busy_deadline": 60}])
def test_who_is_refused_for_good_gives_its_ticket_back(
    app: Celery, tree: Tree, options: dict[str, Any]
) -> None:
    refresh = refreshes(app, **options)
    with held_elsewhere("feed:7"):
        assert run(refresh, "a").state == states.RETRY
        last = run(refresh, "a", AGAIN)
    assert (last.state, type(last.error)) == (states.FAILURE, LockBusy)
    eventually(lambda: not tickets_of(tree))


def test_who_cannot_be_sent_again_gives_its_ticket_back(
    app: Celery, refresh: Any, tree: Tree
) -> None:
    (port,) = free_ports(1)
    app.conf.update(
        broker_url=f"redis://127.0.0.1:{port}/0", broker_transport_options={"max_retries": 0}
    )
    seen = []
    before_task_publish.connect(look := lambda **_: seen.append(tickets_of(tree)))
    try:
        with held_elsewhere("feed:7"):
            last = run(refresh, "a")
    finally:
        before_task_publish.disconnect(look)
    assert seen == [["a"]]
    assert (last.state, type(last.error)) == (states.FAILURE, OperationalError)
    eventually(lambda: not tickets_of(tree))


def test_an_interrupted_task_gives_its_ticket_back(
    refresh: Any, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a soft time limit does, at any point of the way."""
    with held_elsewhere("feed:7"):
        run(refresh, "a")
        monkeypatch.setattr("distlock.celery.tickets.Ticket.stand", _interrupted)
        last = run(refresh, "a", AGAIN)
    assert (last.state, type(last.error)) == (states.FAILURE, ZeroDivisionError)
    eventually(lambda: not tickets_of(tree))


def test_a_ticket_that_was_being_drawn_when_its_task_was_interrupted_is_given_back(
    refresh: Any, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows its path, but its name."""
    session = session_for()
    create, drawn = session.create_persistent, threading.Event()

    def draw_and_interrupt(path: str, data: bytes, _: Any, **how: Any) -> None:
        create(path, data, lambda *_: drawn.set(), **how)
        assert drawn.wait(PATIENCE)
        _interrupted()

    with held_elsewhere("feed:7"):
        run(refresh, "b")
        with monkeypatch.context() as patch:
            patch.setattr(session, "create_persistent", draw_and_interrupt)
            last = run(refresh, "a")
        assert (last.state, type(last.error)) == (states.FAILURE, ZeroDivisionError)
        assert drawn.is_set()
        eventually(lambda: tickets_of(tree) == ["b"], PATIENCE)
    assert run(refresh, "b", AGAIN).state == states.SUCCESS


def _interrupted(*_: Any) -> None:
    raise ZeroDivisionError


# --- what stays as it is under "retry" -----------------------------------------------------------


def test_a_task_that_has_the_lock_already_needs_no_ticket_for_its_second(
    app: Celery, tree: Tree, settings: Settings
) -> None:
    """Or else it would be put off behind others, who wait for the lock that it holds."""
    default = settings.DISTLOCK["default"]
    settings.DISTLOCK = {"default": {**default, "NODE_DATA": "owner"}}  # it cannot know itself

    @app.task(shared=False, name="two_locks")
    @zk_locked("feed:7", on_busy="queue")
    @zk_locked("feed:<feed_id>", on_busy="queue")
    def refresh(feed_id: int, who: str) -> None:
        assert feed_id
        assert who

    other = refreshes(app)
    with held_elsewhere("feed:7"):
        assert run(refresh, "a").state == states.RETRY
        assert run(other, "b").state == states.RETRY
    assert run(refresh, "a", AGAIN).state == states.SUCCESS
    assert run(other, "b", AGAIN).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


def test_a_copy_of_the_holder_is_dropped_and_leaves_no_ticket(app: Celery, tree: Tree) -> None:
    ended: list[str] = []

    @app.task(shared=False, name="copied")
    @zk_locked("feed:<feed_id>", on_busy="queue")
    def refresh(feed_id: int, who: str) -> None:
        if feed_id == 7 and who == "a" and not ended:
            with Owner() as owner:
                assert owner.now(run, other, "b").state == states.RETRY
                assert tickets_of(tree) == ["b"]
                ended.append(owner.now(run, refresh, "a").state)

    other = refreshes(app)
    assert run(refresh, "a").state == states.SUCCESS
    assert ended == [states.IGNORED]
    eventually(lambda: tickets_of(tree) == ["b"])
    assert run(other, "b", AGAIN).state == states.SUCCESS
