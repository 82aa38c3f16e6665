"""Our four requests have the bytes that kazoo's have, and read what kazoo's read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoos
from kazoo.protocol.serialization import int_struct, stat_struct, write_string
from kazoo.security import ACL, Id

from distlock.engine.zookeeper.messages import AccessList, Create2, Delete, GetChildren, GetData

PATHS = st.text(min_size=1)
INTS = st.integers(-(2**31), 2**31 - 1)
ACLS = st.lists(
    st.builds(ACL, st.integers(1, 31), st.builds(Id, st.text(min_size=1), st.text(min_size=1)))
)
LONGS = st.integers(-(2**63), 2**63 - 1)
STATS = st.tuples(LONGS, LONGS, LONGS, LONGS, INTS, INTS, INTS, LONGS, INTS, INTS, LONGS)


def no_watcher(_: object) -> None:
    """Be called by nobody."""


@given(PATHS, st.binary(), ACLS, st.integers(0, 6))
def test_a_create(path: str, data: bytes, acl: list[Any], flags: int) -> None:
    ours = Create2(path, data, AccessList(acl), flags)
    assert ours.serialize() == kazoos.Create2(path, data, acl, flags).serialize()


@given(PATHS, st.none() | st.just(no_watcher), INTS)
def test_requests_of_a_path(path: str, watcher: Any, version: int) -> None:
    assert GetChildren(path, watcher).serialize() == kazoos.GetChildren(path, watcher).serialize()
    assert GetData(path, watcher).serialize() == kazoos.GetData(path, watcher).serialize()
    assert Delete(path, version).serialize() == kazoos.Delete(path, version).serialize()


@given(PATHS, STATS, st.binary(max_size=5))
def test_the_answer_to_a_create(path: str, stat: tuple[int, ...], before: bytes) -> None:
    content = before + write_string(path) + stat_struct.pack(*stat)
    answer = Create2.deserialize(content, len(before))
    assert answer == kazoos.Create2.deserialize(content, len(before))
    assert answer[0] == path


@given(st.lists(PATHS))
def test_the_answer_to_a_list(names: list[str]) -> None:
    content = int_struct.pack(len(names)) + b"".join(map(write_string, names))
    assert (
        GetChildren.deserialize(content, 0) == kazoos.GetChildren.deserialize(content, 0) == names
    )


def test_a_name_that_is_no_text_raises() -> None:
    content = int_struct.pack(1) + int_struct.pack(1) + b"\xff"
    with pytest.raises(UnicodeDecodeError):
        GetChildren.deserialize(content, 0)
