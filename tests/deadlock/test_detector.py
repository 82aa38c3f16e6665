"""The look itself: what is a circle, and what it does not fall for.

The other one in the circle is made by hand here: nodes that say that they are its, and a notice.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from distlock import DeadlockDetected, zk_lock, zk_rwlock
from distlock.contenders import waiting
from distlock.locks import deadlocks
from distlock.locks.deadlocks import WAITS, DeadlockDetector, _Notice
from distlock.owner.owner import current
from distlock_chaos.proxy import TcpProxy
from tests.deadlock.tools import AFTER, Other, await_notices, given_way, notices, tie, wait
from tests.inspection.tools import cleared, stand
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions, pass_time
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree


def after_the_first_look(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[Any]:
    """Let something happen once, between the look that finds a deadlock and the second one."""
    found: list[Any] = []
    look = DeadlockDetector._deadlock

    def noted(self: DeadlockDetector, *args: Any, **options: Any) -> Any:
        cycle = yield from look(self, *args, **options)
        found.append(cycle)
        if cycle is not None and sum(one is not None for one in found) == 1:
            act()
        return cycle

    monkeypatch.setattr(DeadlockDetector, "_deadlock", noted)
    return found


def looked(looks: list[Any], times: int) -> None:
    """Wait until there were so many looks more."""
    before = len(looks)
    eventually(lambda: len(looks) >= before + times, PATIENCE, f"{times} looks")


def goes_on(other: Other, owner: Owner, waits: Future[bool], looks: list[Any]) -> None:
    """The wait is no deadlock, and ends when the lock is free."""
    looked(looks, 2)
    assert not waits.done()
    other.release()
    assert waits.result(PATIENCE) is True
    owner.now(zk_lock("b").release)


# --- what is one, and what is none ---------------------------------------------------------------


def test_the_other_one_came_last_and_cannot_look(
    other: Other, owner: Owner, looks: list[Any]
) -> None:
    """It has to give way, and who came before it waits on, until its own time is up."""
    waits = wait(other.tree, owner, zk_lock("b"), timeout=8 * AFTER)
    other.wait()
    other.notify()
    assert waits.result(PATIENCE) is False
    assert looks
    assert not any(looks)


def test_who_does_not_say_where_it_waits_goes_on(
    other: Other, owner: Owner, looks: list[Any]
) -> None:
    other.wait()
    goes_on(other, owner, wait(other.tree, owner, zk_lock("b")), looks)


def test_a_peer_does_not_say_who_it_is(tree_of_waits: Tree, owner: Owner, looks: list[Any]) -> None:
    stand(tree_of_waits, "c")  # as Java does
    stand(tree_of_waits, "a")
    assert owner.now(zk_lock("c").acquire, timeout=4 * AFTER) is False
    assert looks
    assert not any(looks)


@pytest.mark.parametrize(
    "said",
    [
        {"v": 1, "waits": "a/_c_x-lock-0000000000"},
        {"v": 1, "waits": "a"},
        {"v": 1, "waits": "../a/_c_x-lock-0000000000"},
        {"v": 1, "waits": "a/b/_c_x-lock-0000000000"},
        {"v": 1, "waits": "\0/_c_x-lock-0000000000"},
        {"v": 1, "waits": "\ud800/_c_x-lock-0000000000"},  # would end kazoo's connection thread
        {"v": 1, "waits": ["a"]},
        {"v": 1},
        ["a"],
        "a",
    ],
    ids=range(10),
)
def test_a_notice_of_nonsense_hides_no_other(
    tree_of_waits: Tree, make_owner: MakeOwner, said: object
) -> None:
    owner, a = make_owner(), zk_lock("a")
    with cleared(tree_of_waits):
        assert owner.now(a.acquire)
        nonsense, other = (Other(tree_of_waits, "__READ__") for _ in range(2))
        for reader in (nonsense, other):
            reader.wait()
        nonsense.notify(said)
        other.notify()
        error = given_way(wait(tree_of_waits, owner, zk_rwlock("b").write))
        assert other.id in {one.owner_id for one in error.cycle}
        owner.now(a.release)


def test_a_notice_about_another_ones_node_says_nothing(
    other: Other, owner: Owner, looks: list[Any]
) -> None:
    other.waits = stand(other.tree, "a", data=uuid4().hex)
    other.notify()
    goes_on(other, owner, wait(other.tree, owner, zk_lock("b")), looks)


def test_who_holds_by_now_waits_no_more(other: Other, owner: Owner, looks: list[Any]) -> None:
    """A notice may be there for a moment longer."""
    other.waits = stand(other.tree, "c", data=other.id)  # first in line
    other.notify()
    goes_on(other, owner, wait(other.tree, owner, zk_lock("b")), looks)


def test_a_circle_that_is_not_there_at_the_second_look_is_none(
    other: Other, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.wait()
    other.notify()
    looks = after_the_first_look(monkeypatch, other.stop_waiting)
    waits = wait(other.tree, owner, zk_lock("b"))
    eventually(lambda: len(looks) > 1, PATIENCE)
    assert [look is not None for look in looks[:2]] == [True, False]
    goes_on(other, owner, waits, looks)


def test_another_circle_at_the_second_look_has_to_be_seen_twice_itself(
    tree_of_waits: Tree, make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reader waits no more, and another one says only now that it does."""
    owner, a = make_owner(), zk_lock("a")
    with cleared(tree_of_waits):
        assert owner.now(a.acquire)
        readers = [Other(tree_of_waits, "__READ__") for _ in range(2)]
        for reader in readers:
            reader.wait()
        readers[0].notify()

        def change() -> None:
            readers[0].stop_waiting()
            readers[1].notify()

        looks = after_the_first_look(monkeypatch, change)
        given_way(wait(tree_of_waits, owner, zk_rwlock("b").write))
        owner.now(a.release)
    circles = [look.nodes for look in looks if look is not None]
    assert len(circles) == 4
    assert circles[0] != circles[1] == circles[2] == circles[3]


def test_a_lock_that_is_granted_during_the_look_is_held(
    other: Other, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = DeadlockDetector._deadlock
    held_up: list[Any] = []

    def slow(self: DeadlockDetector, place: Any, *args: Any, sync: bool = False) -> Any:
        cycle = yield from look(self, place, *args, sync=sync)
        if sync and not held_up:
            held_up.append(place)
            other.release()
            while not place.granted:
                yield 0.01
        return cycle

    monkeypatch.setattr(DeadlockDetector, "_deadlock", slow)
    other.wait()
    other.notify()
    waits = wait(other.tree, owner, zk_lock("b"))
    assert waits.result(PATIENCE) is True
    (place,) = held_up
    pass_time(AFTER)
    assert place.error is None
    assert owner.now(lambda: zk_lock("b").held)
    owner.now(zk_lock("b").release)


# --- notices, threads, outages -------------------------------------------------------------------


def test_a_notice_that_somebody_has_removed_is_put_up_again(
    other: Other, owner: Owner, looks: list[Any]
) -> None:
    waits = wait(other.tree, owner, zk_lock("b"))
    await_notices(other.tree, 1)
    (notice,) = notices(other.tree)
    other.tree.client.delete(f"{other.tree.namespace}/{WAITS}/{notice}")
    await_notices(other.tree, 1)
    goes_on(other, owner, waits, looks)


def test_an_interrupt_takes_the_notice_down(
    other: Other, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = waiting.Attempt.patience

    def until_there_is_a_notice(self: waiting.Attempt[Any]) -> float | None:
        if notices(other.tree):
            raise KeyboardInterrupt
        return patience(self)

    monkeypatch.setattr(waiting.Attempt, "patience", until_there_is_a_notice)
    waits = owner.submit(zk_lock("b").acquire, timeout=PATIENCE)
    with pytest.raises(KeyboardInterrupt):
        waits.result(PATIENCE)
    await_notices(other.tree, 0)
    other.tree.await_line("b", 1)


class Requests:
    """A session that notes what is sent, never answers, and lets a test act in between."""

    id = 7
    root = "/locks"
    connected = True
    over = False

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def when_connected(self, step: Callable[[], None]) -> None:
        step()

    def create_ephemeral(self, path: str, data: bytes, done: Any, orphan: Any) -> None:
        self.meanwhile()
        self.sent.append("create")

    def children(self, path: str, done: Any, *, sync: bool) -> None:
        self.sent.append("look")

    def delete(self, path: str, session_id: int) -> None:
        assert session_id == self.id
        self.sent.append("delete")


def test_a_notice_that_is_taken_down_while_it_is_made_goes_after_all() -> None:
    session: Any = Requests()
    notice = _Notice(session, "owner")
    session.meanwhile = notice.take_down  # the waiter's thread, while another one sends
    notice.put_up("/locks/a/node")
    assert session.sent[-1] == "delete"


def test_the_notice_comes_before_the_look_and_one_look_at_a_time() -> None:
    """Those who have come at the same moment need each other's notices."""
    session: Any = Requests()
    place: Any = SimpleNamespace(
        session=session, key="a", path="/locks/a", node=SimpleNamespace(name="node")
    )
    detector = DeadlockDetector(current(), 60)

    def due() -> list[str]:
        session.sent.clear()
        detector._next = 0.0
        assert 29 < detector.turn(place, lambda: None) < 67
        return list(session.sent)

    assert 29 < detector.turn(place, lambda: None) <= 30
    assert session.sent == []
    assert due() == ["create"]
    assert due() == ["create", "look"]
    assert due() == ["create"]  # the look before has no answer yet
    detector.end()
    assert session.sent[-1] == "delete"


def test_a_look_that_takes_too_long_is_given_up(
    other: Other, owner: Owner, looks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlocks, "BUDGET_SECONDS", 0)
    other.wait()
    other.notify()
    waits = wait(other.tree, owner, zk_lock("b"))
    await_notices(other.tree, 2)
    pass_time(2 * AFTER)
    assert not looks
    monkeypatch.undo()
    given_way(waits)


def test_an_outage_during_the_look_is_none_of_the_waiters_business(  # noqa: PLR0917 - fixtures
    tree_of_waits: Tree,
    make_owner: MakeOwner,
    broken_link: TcpProxy,
    options: SetOptions,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options(CONNECT_TIMEOUT=PATIENCE, SESSION_TIMEOUT=20)
    looks = after_the_first_look(monkeypatch, broken_link.drop)
    a, b = zk_lock("a"), zk_lock("b")
    first, second = make_owner(), make_owner()
    waits = tie(tree_of_waits, [first, second], [a, b], [b, a])
    error = given_way(waits[1])  # by this look, which waits for the connection, or a later one
    assert isinstance(error, DeadlockDetected)
    assert sum(look is not None for look in looks) >= 2
    assert "bug" not in caplog.text
    second.now(b.release)
    assert waits[0].result(PATIENCE)
    first.now(b.release)
    first.now(a.release)
