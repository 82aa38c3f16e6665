"""Whom a contender of each kind waits for, and whom it cannot wait for."""

from __future__ import annotations

from typing import Any

import pytest

from distlock.keys.znodes import READ, REVOKE, WRITE
from distlock.queue import events as e
from distlock.queue import policies
from distlock.queue.states import State
from tests.queue.test_machine import OURS, Line, other, own
from tests.queue.world import node_of


@pytest.mark.parametrize(
    ("policy", "ahead", "watched"),
    [
        (policies.READER, [other(0, READ)], None),
        (policies.READER, [other(0, WRITE), other(1, READ)], other(0, WRITE)),
        (policies.READER, [other(0, WRITE), other(1, WRITE)], other(0, WRITE)),
        (policies.WRITER, [other(0, READ)], other(0, READ)),
        (policies.FAIR, [other(0), other(1)], other(1)),
    ],
)
def test_each_kind_waits_for_one(
    policy: policies.Policy, ahead: list[str], watched: str | None
) -> None:
    line = Line(len(ahead))
    contender = line.contender(policy)
    contender.apply(e.Join())
    line.create(contender)
    expected = e.Grant() if watched is None else e.Watch(watched)
    assert contender.apply(e.Listed([*ahead, own(contender)])) == [expected]


def test_one_who_does_not_queue_waits_without_a_node() -> None:
    line = Line(1)
    contender = line.contender(policies.UNFAIR)
    contender.apply(e.Join())
    line.create(contender)
    name = own(contender)
    aside = contender.apply(e.Listed([other(), name]))
    assert aside == [e.Delete(name, 1), e.Watch(other())]
    assert contender.apply(e.Changed(other(), deleted=True)) == [e.List()]
    assert contender.apply(e.Listed([]))[0] == e.Create("_c_1-lock-")


def test_one_who_does_not_queue_takes_its_watch_back() -> None:
    contender = Line(1).joined(policies.UNFAIR, other())
    assert contender.apply(e.Leave()) == [e.Unwatch(other())]


@pytest.mark.parametrize("policy", [policies.MUTEX, policies.UNFAIR, policies.READER])
def test_one_who_only_tries_does_not_wait(policy: policies.Policy) -> None:
    line = Line(1)
    writer = other(0, WRITE if policy.kind == READ else "lock-")
    contender = line.joined(policy, writer, try_only=True)
    name = own(contender)
    assert contender.state is State.BUSY
    assert contender.ahead == 1
    assert contender.apply(e.Leave()) == [e.Delete(name, 1)]


def test_a_downgraded_reader_gets_the_number_and_the_token_of_the_writer() -> None:
    line = Line(7)
    writer = line.joined(policies.WRITER)
    assert writer.node is not None
    reader = line.contender(policies.downgraded(writer))
    assert reader.apply(e.Join())[0] == e.Create("_c_2-__READ__0000000007", sequential=False)
    reader.apply(e.Created(node_of("_c_2-__READ__0000000007", 999, 1)))
    names = [other(8, WRITE), own(reader), own(writer)]
    assert reader.apply(e.Listed(names)) == [e.Grant()]
    assert reader.node is not None
    assert reader.node.token == writer.node.token


def test_a_writer_that_is_lost_is_not_downgraded() -> None:
    line = Line()
    writer = line.joined(policies.WRITER)
    reader = line.contender(policies.downgraded(writer))
    reader.apply(e.Join())
    reader.apply(e.Created(node_of("_c_2-__READ__0000000000", 999, 1)))
    assert reader.apply(e.Listed([own(reader)])) == [e.Refuse(e.Why.WRITER_LOST)]
    writer.apply(e.FoundBroken())
    late = line.contender(policies.downgraded(writer))
    assert late.apply(e.Join()) == [e.Refuse(e.Why.WRITER_LOST)]


# --- other recipes -------------------------------------------------------------------------------


def test_a_lock_of_kazoo_on_the_path_is_refused() -> None:
    line = Line()
    contender = line.contender()
    contender.apply(e.Join())
    line.create(contender)
    kazoos = "0123456789abcdef__lock__0000000003"
    refused = contender.apply(e.Listed([own(contender), kazoos]))
    assert refused == [e.Refuse(e.Why.INCOMPATIBLE, kazoos)]
    assert contender.apply(e.Leave()) == [e.Delete("_c_1-lock-0000000000", 1)]


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
