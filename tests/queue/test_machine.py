"""The state machine of a contender, one event at a time.

Here is also all that `tests.queue.explore` does not model: other recipes on the path, worn lines,
revocation, errors of the server, downgrades.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from distlock.keys.znodes import REVOKE, WORN, WRITE
from distlock.queue import events as e
from distlock.queue import local_line, policies
from distlock.queue.local_line import LocalLine
from distlock.queue.machine import Machine
from distlock.queue.states import State
from tests.queue.world import node_of

if TYPE_CHECKING:
    pass

OURS = b'{"v":1}'


class Session:
    """A session as a contender sees it, and its deadline."""

    id = 1
    connected = True
    epoch = 1
    running = True
    far = False

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


def test_a_line_that_has_begun_anew_is_listed() -> None:
    line = Line()
    line.joined()
    line.local.lines.clear()
    after = line.contender()
    after.apply(e.Join(follows=True))
    line.create(after)
    assert after.apply(e.LineRead(token=line.zxid)) == [e.List()]


def test_on_a_long_link_one_message_hands_the_lock_over() -> None:
    line = Line(number=2)
    line.session.far = True
    contender = line.joined(policies.MUTEX, other(0), other(1))
    assert contender._watching == {other(0), other(1)}
    assert contender.apply(e.Changed(other(0), deleted=True)) == [e.LIST]
    assert contender.apply(e.Listed([other(1), own(contender)])) == []
    assert contender.apply(e.Changed(other(1), deleted=True)) == [e.GRANT]


def test_a_holder_whose_node_is_written_to_goes_on_watching_it() -> None:
    contender = Line().joined()
    node = own(contender)
    assert contender.apply(e.Renewed()) == [e.Watch(node)]
    assert contender.apply(e.Changed(node, deleted=False)) == [e.Watch(node)]
    assert contender.state is State.HOLDING


# --- worn lines ----------------------------------------------------------------------------------


def test_a_worn_line_with_data_of_somebody_is_not_removed() -> None:
    contender = Line(WORN).joined()
    refused = contender.apply(e.LineRead(token=1, plain=False))
    assert refused == [e.Refuse(e.Why.NOT_REMOVABLE)]


@pytest.mark.parametrize("number", [WORN - 1, WORN])
def test_who_waits_in_a_worn_line_knows_whether_its_first_one_waits_too(number: int) -> None:
    contender = Line(WORN).joined(policies.MUTEX, other(number))
    assert contender.head_is_worn is (number == WORN)


# --- the grant -----------------------------------------------------------------------------------


def test_a_node_that_its_holder_finds_gone_is_deleted_all_the_same() -> None:
    """A failover of Redis may bring it back."""
    contender = Line().joined()
    lost = contender.apply(e.GiveUp("broken"))
    assert lost == [e.Lose("broken"), e.Delete(own(contender), 1)]


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


def test_a_node_that_may_not_be_read_after_a_lost_reply_is_deleted() -> None:
    contender, error = Line().contender(), OSError("no")
    for event in (e.Join(), e.Disconnected(), e.Connected(), e.Listed(["_c_1-lock-0000000000"])):
        contender.apply(event)
    refused = contender.apply(e.NodeRead("_c_1-lock-0000000000", error=error))
    assert refused == [e.Delete("_c_1-lock-0000000000", 1), e.Refuse(e.Why.ERROR, error)]


# --- other recipes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "state"),
    [
        (OURS, None, State.WAITING),
        (REVOKE, None, State.WAITING),
        (b"10.0.0.1", None, State.REFUSED),
        (b"", e.Problem.MISSING, State.WAITING),
        (b"", OSError(), State.REFUSED),
    ],
)
def test_a_node_of_the_other_family_is_read_first(data: bytes, error: Any, state: State) -> None:
    line = Line(1)
    writer = other(0, WRITE)
    contender = line.joined(policies.MUTEX, writer)
    assert contender.state is State.JUDGING
    contender.apply(e.NodeRead(writer, node_of(writer, 1, 9), data, error))
    if state is State.WAITING:
        contender.apply(e.Listed([writer, own(contender)]))
    assert contender.state is state


def test_a_mutex_lists_the_line_when_a_writer_ahead_has_gone() -> None:
    """CURATOR-621: the writer may read on, in its very spot."""
    line = Line(1)
    writer = other(0, WRITE)
    contender = line.joined(policies.MUTEX, writer)
    contender.apply(e.NodeRead(writer, node_of(writer, 1, 9), OURS))
    contender.apply(e.Listed([writer, own(contender)]))
    assert contender.state is State.WAITING
    assert contender.apply(e.Changed(writer, deleted=True)) == [e.List()]
