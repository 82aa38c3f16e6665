"""The state machine of a contender, one event at a time.

Here is also all that `tests.queue.explore` does not model: other recipes on the path, worn lines,
revocation, errors of the server, downgrades.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from distlock.keys.znodes import REVOKE, WORN
from distlock.queue import events as e
from distlock.queue import local_line, policies
from distlock.queue.local_line import LocalLine
from distlock.queue.machine import Machine
from distlock.queue.states import State
from tests.kit.helpers import without_garbage_collection
from tests.queue.world import node_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

OURS = b'{"v":1}'


class Session:
    """A session as a contender sees it, and its deadline."""

    id = 1
    connected = True
    epoch = 1
    running = True

    @property
    def deadline(self) -> Session:
        return self

    def unbroken(self, epoch: int) -> bool:
        return self.running and self.epoch == epoch


class Line:
    """The line's numbers, and the contenders of one process."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.zxid = 100
        self.session = Session()
        self.local = LocalLine()
        #: The line's own node is watched; it came directly before the first contender.
        self.local.lines[""] = local_line.Line(self.zxid)
        self.made = 0

    def contender(self, policy: policies.Policy = policies.MUTEX, **options: Any) -> Machine:
        self.made += 1
        prefix = f"_c_{self.made}-"
        return Machine(
            policy, self.session, self.local, me=self.made, new_prefix=lambda: prefix, **options
        )

    def create(self, contender: Machine) -> list[Any]:
        """Answer a create."""
        name = f"{contender.prefix}{contender.policy.kind}{self.number:010d}"
        self.number += 1
        self.zxid += 1
        return list(contender.apply(e.Created(node_of(name, self.zxid, self.session.id))))

    def joined(
        self, policy: policies.Policy = policies.MUTEX, *ahead: str, **options: Any
    ) -> Machine:
        """Return a contender that has seen the line, with these nodes and its own."""
        contender = self.contender(policy, **options)
        contender.apply(e.Join())
        self.create(contender)
        assert contender.node is not None
        contender.apply(e.Listed([*ahead, contender.node.name]))
        return contender


def other(number: int = 0, kind: str = "lock-") -> str:
    return f"_c_other-{kind}{number:010d}"


def own(contender: Machine) -> str:
    assert contender.node is not None
    return contender.node.name


# --- one after the other -------------------------------------------------------------------------


def test_an_uncontended_grant_takes_one_round_trip() -> None:
    line = Line()
    contender = line.contender()
    assert contender.apply(e.Join()) == [e.Create("_c_1-lock-"), e.List()]
    assert line.create(contender) == []
    assert contender.apply(e.Listed([own(contender)])) == [e.Grant()]
    assert contender.valid
    assert contender.apply(e.Leave()) == [e.Delete("_c_1-lock-0000000000", 1)]
    assert contender.state is State.LEFT


def test_a_neighbour_gets_the_lock_without_asking_the_server() -> None:
    line = Line()
    holder = line.joined()
    after = line.contender()
    assert after.apply(e.Join(follows=True)) == [e.Create("_c_2-lock-")]
    assert line.create(after) == []
    left = e.NeighbourLeft(own(holder), 1)
    assert holder.apply(e.Leave())[-1] == e.Tell(after.me, left)
    assert after.apply(left) == [e.Grant()]
    after.apply(e.Leave())
    line.local.forget("_c_2-lock-0000000001")
    assert not line.local.nodes


def test_a_neighbour_that_comes_late_finds_the_lock_that_was_left_for_it() -> None:
    line = Line()
    holder, after = line.joined(), line.contender()
    after.apply(e.Join(follows=True))
    holder.apply(e.Leave())
    assert line.create(after) == [e.Grant()]


def test_a_line_that_may_have_begun_anew_is_watched_before_a_neighbour_counts() -> None:
    line = Line()
    line.joined()
    line.local.lines.clear()
    after = line.contender()
    after.apply(e.Join(follows=True))
    assert line.create(after) == [e.WatchLine()]
    assert after.apply(e.LineRead(token=1)) == []
    assert after.state is State.BEHIND


def test_a_line_that_has_begun_anew_is_listed() -> None:
    line = Line()
    line.joined()
    line.local.lines.clear()
    after = line.contender()
    after.apply(e.Join(follows=True))
    line.create(after)
    assert after.apply(e.LineRead(token=line.zxid)) == [e.List()]


def test_one_whose_node_is_gone_does_not_take_the_place_of_its_follower() -> None:
    line = Line()
    holder = line.joined()
    line.local.lines.clear()
    broken = line.contender()
    broken.apply(e.Join(follows=True))
    line.create(broken)
    after = line.joined(policies.MUTEX, own(holder))
    assert broken.apply(e.LineRead(token=1)) == [e.List()]
    left = e.NeighbourLeft(own(holder), 1)
    assert holder.apply(e.Leave())[-1] == e.Tell(after.me, left)


def test_one_who_only_tries_lists_the_line_though_it_follows() -> None:
    line = Line()
    holder, after = line.joined(), line.contender(try_only=True)
    assert after.apply(e.Join(follows=True)) == [e.Create("_c_2-lock-"), e.List()]
    line.create(after)
    assert after.apply(e.Listed([own(holder), own(after)])) == [e.Busy()]


def test_a_holder_without_a_neighbour_leaves_nothing() -> None:
    line = Line()
    holder = line.joined()
    node = holder.node
    assert node is not None
    holder.apply(e.Leave())
    line.local.forget(node.name)
    assert not line.local.nodes


def test_the_only_one_ahead_is_not_asked_for_again() -> None:
    contender = Line(1).joined(policies.MUTEX, other())
    assert contender.state is State.WAITING
    assert contender.apply(e.Changed(other(), deleted=True)) == [e.Grant()]


def test_one_of_several_ahead_may_have_given_up() -> None:
    contender = Line(2).joined(policies.MUTEX, other(0), other(1))
    assert contender.apply(e.Changed(other(1), deleted=True)) == [e.List()]


def test_a_session_is_proven_before_a_grant() -> None:
    line = Line()
    line.session.running = False
    contender = line.joined()
    assert contender.state is State.PROVING
    line.session.running = True
    assert contender.apply(e.Proved()) == [e.List()]


def test_without_a_connection_it_waits_for_one() -> None:
    line = Line()
    line.session.connected = False
    contender = line.contender()
    assert contender.apply(e.Join()) == []
    assert contender.state is State.PARKED
    line.session.connected = True
    assert contender.apply(e.Connected()) == [e.Create("_c_1-lock-"), e.List()]


def test_whoever_is_interrupted_in_its_join_deletes_no_node_of_others() -> None:
    """An exception may land before any line of the join."""
    for line_number in range(100):
        line = Line()
        contender = line.contender()
        with suppress(Interrupted):
            interrupted_at(line_number, lambda c=contender: c.apply(e.Join()))  # type: ignore[misc]
        complete = contender._effects != []
        contender.apply(e.Leave(sure=False))
        assert contender.state in (State.LEFT, State.SEARCHING)
        assert not contender.apply(e.Listed([other()], sync=True))
        assert contender.state is State.LEFT
        if complete:
            break
    assert line_number > 10


class Interrupted(BaseException):
    """Lands in the middle of a call."""


def interrupted_at(line_number: int, call: Callable[[], object]) -> None:
    """Call, and raise before the line that comes after so many."""
    left = line_number

    def trace(_frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                raise Interrupted
        return trace

    before = sys.gettrace()
    with without_garbage_collection():  # or it lands in the finaliser of something else
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)


# --- worn lines ----------------------------------------------------------------------------------


def test_a_worn_line_begins_anew_when_nobody_is_in_it() -> None:
    line = Line(WORN)
    contender = line.contender()
    contender.apply(e.Join())
    line.create(contender)
    name = own(contender)
    assert contender.apply(e.Listed([name])) == [e.Delete(name, 1), e.ReadLine()]
    assert contender.apply(e.LineRead(token=1, version=3)) == [e.RemoveLine(3)]
    assert contender.apply(e.LineRemoved())[0] == e.Create("_c_1-lock-")


def test_a_worn_line_with_data_of_somebody_is_not_removed() -> None:
    contender = Line(WORN).joined()
    refused = contender.apply(e.LineRead(token=1, plain=False))
    assert refused == [e.Refuse(e.Why.NOT_REMOVABLE)]


def test_one_who_has_joined_a_worn_line_meanwhile_is_waited_for() -> None:
    contender = Line(WORN).joined()
    contender.apply(e.LineRead(token=1))
    assert contender.apply(e.LineRemoved(e.Problem.NOT_EMPTY)) == [e.List()]
    assert contender.apply(e.Listed([other(WORN + 1)])) == [e.Watch(other(WORN + 1))]
    assert contender.head_is_worn


def test_a_worn_line_is_left_while_others_are_in_it() -> None:
    contender = Line(WORN).joined(policies.MUTEX, other(WORN - 1))
    assert contender.state is State.ASIDE
    assert not contender.head_is_worn


# --- the grant -----------------------------------------------------------------------------------


def test_a_request_to_leave_is_heard_once() -> None:
    line = Line()
    contender = line.contender(revocable=True)
    contender.apply(e.Join())
    (watch,) = line.create(contender)
    name = own(contender)
    assert watch == e.Watch(name)
    contender.apply(e.Watched(name, OURS))
    contender.apply(e.Listed([name]))
    assert contender.apply(e.Changed(name, deleted=False)) == [e.Watch(name)]
    assert contender.apply(e.Watched(name, REVOKE, 1)) == [e.Revoke()]
    contender.apply(e.Changed(name, deleted=False))
    assert contender.apply(e.Watched(name, REVOKE, 1)) == []


def test_a_request_to_leave_is_heard_after_a_cut() -> None:
    line = Line()
    contender = line.joined(revocable=True)
    contender.apply(e.Disconnected())
    assert contender.apply(e.Connected()) == [e.Watch(own(contender))]


def test_a_holder_watches_its_node_from_the_first_heartbeat_on() -> None:
    contender = Line().joined()
    assert contender.apply(e.Renewed()) == [e.Watch(own(contender))]
    assert contender.apply(e.Renewed()) == []
    lost = contender.apply(e.Changed(own(contender), deleted=True))
    assert lost == [e.Lose(e.Loss.BROKEN), e.Delete(own(contender), 1)]
    assert contender.state is State.LOST


def test_a_node_that_its_holder_finds_gone_is_deleted_all_the_same() -> None:
    """A failover of Redis may bring it back."""
    contender = Line().joined()
    lost = contender.apply(e.FoundBroken())
    assert lost == [e.Lose(e.Loss.BROKEN), e.Delete(own(contender), 1)]


def test_a_hold_that_takes_too_long_is_lost_before_its_node_is_deleted() -> None:
    contender = Line().joined()
    lost = contender.apply(e.HeldTooLong())
    assert lost == [e.Lose(e.Loss.MAX_HOLD), e.Delete(own(contender), 1)]


def test_a_hold_that_was_lost_before_is_given_up_all_the_same() -> None:
    line = Line()
    contender = line.joined()
    line.session.epoch = 2
    contender.apply(e.Lapsed())
    assert contender.apply(e.HeldTooLong()) == [e.Delete(own(contender), 1)]


def test_a_lapse_in_the_session_deadline_ends_a_grant_for_good() -> None:
    line = Line()
    contender = line.joined()
    line.session.epoch = 2
    assert not contender.valid
    assert contender.apply(e.Lapsed()) == [e.Lose(e.Loss.SESSION)]
    assert line.session.running


def test_a_new_session_ends_a_grant() -> None:
    line = Line()
    contender = line.joined()
    contender.apply(e.Disconnected())
    line.session.id = 2
    assert contender.apply(e.Connected()) == [e.Lose(e.Loss.SESSION)]


def test_a_lost_lock_is_not_handed_over() -> None:
    line = Line()
    holder = line.joined()
    after = line.joined(policies.MUTEX, own(holder))
    assert after.state is State.BEHIND
    line.session.epoch = 2
    left = e.NeighbourLeft(own(holder), None)
    assert holder.apply(e.Leave())[-1] == e.Tell(after.me, left)
    assert after.apply(left) == [e.List()]


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["create", "line", "list", "watch", "clear", "remove", "peek"])
def test_an_unknown_error_is_for_the_caller(when: str) -> None:
    error = OSError("no")
    line = Line(WORN if when in ("clear", "remove") else 1)
    if when == "create":
        contender = line.contender()
        contender.apply(e.Join())
        refused = contender.apply(e.Created(None, error))
    elif when == "line":
        contender = line.contender()
        contender.apply(e.Join())
        contender.apply(e.Created(None, e.Problem.MISSING))
        contender.apply(e.LineMade(error))
        refused = contender.apply(e.Created(None, e.Problem.MISSING))
    elif when == "list":
        contender = line.contender()
        contender.apply(e.Join())
        line.create(contender)
        refused = contender.apply(e.Listed([], error))
    elif when == "watch":
        contender = line.joined(policies.MUTEX, other())
        refused = contender.apply(e.Watched(other(), error=error))
    elif when == "peek":
        contender = line.joined(policies.UNFAIR, other())
        contender.apply(e.Changed(other(), deleted=True))
        refused = contender.apply(e.Listed([], error))
    elif when == "clear":
        contender = line.joined()
        refused = contender.apply(e.LineRead(error=error))
    else:
        contender = line.joined()
        contender.apply(e.LineRead(token=1))
        refused = contender.apply(e.LineRemoved(error))
    assert refused == [e.Refuse(e.Why.ERROR, error)]
    assert contender.state is State.REFUSED


# --- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_leaving_twice_is_leaving_once(state: State) -> None:
    line = Line()
    contender = line.contender()
    contender.apply(e.Join())
    contender.state, contender._watched = state, other()
    contender.apply(e.Leave())
    left = contender.state
    assert left in (State.LEAVING, State.SEARCHING, State.LEFT)
    assert contender.apply(e.Leave()) == ()
    assert contender.state is left
