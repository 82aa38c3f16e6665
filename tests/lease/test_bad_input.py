"""What cannot be meant is refused with a message that says what to write."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from distlock import LockBusy, zk_lease
from distlock.lease.nodes import LONGEST
from tests.kit.tools import Tree
from tests.lease.tools import LONG, node_path

A_WEEK = 7 * 86400


@pytest.mark.parametrize("ttl", [0, -1, 0.0, math.nan, math.inf, -math.inf, timedelta(0)])
def test_a_lease_lasts_for_some_seconds(ttl: Any) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        zk_lease("key", ttl)
    with pytest.raises(ValueError, match="must be above 0"):
        zk_lease("key", LONG, owner="me").renew(ttl)


@pytest.mark.parametrize("ttl", ["60", None, True, 1j, b"60", [60]])
def test_its_time_is_a_number_or_a_timedelta(ttl: Any) -> None:
    with pytest.raises(TypeError, match="a number of seconds or a timedelta"):
        zk_lease("key", ttl)


@pytest.mark.parametrize("ttl", [A_WEEK * 1000, timedelta(days=367), LONGEST + 1, 10**400])
def test_milliseconds_by_mistake_are_recognised(ttl: Any) -> None:
    with pytest.raises(ValueError, match="it is in seconds"):
        zk_lease("key", ttl)


@pytest.mark.parametrize("owner", [42, b"me", object, ["me"]], ids=repr)
def test_an_owner_is_text(owner: Any) -> None:
    with pytest.raises(TypeError, match=r"Convert it with str\(\)"):
        zk_lease("key", LONG, owner=owner)


@pytest.mark.parametrize("owner", ["", "x" * 201, "a\nb", "\ud800", "\x00"], ids=ascii)
def test_an_owner_has_a_name_that_can_be_printed(owner: str) -> None:
    with pytest.raises(ValueError, match=r"^owner "):
        zk_lease("key", LONG, owner=owner)


def test_an_acquire_without_an_owner_is_refused() -> None:
    with pytest.raises(TypeError, match="owner=task_id"):
        zk_lease("key", LONG).acquire()


UNREADABLE = [
    b"",
    b"\xff\xfe",
    b"[]",
    b'{"owner": "me", "ttl": 1}',
    b'{"v":1,"owner":"","ttl":1,"mark":"' + b"0" * 32 + b'"}',
    b'{"v":1,"owner":"me","ttl":-1,"mark":"' + b"0" * 32 + b'"}',
    b'{"v":1,"owner":"me","ttl":1,"mark":"../../x"}',
    b'{"v":1,"owner":"me","ttl":1,"mark":"' + b"0" * 32 + b'"}',  # which it does not have
    b"[" * 100_000,
]


@pytest.mark.parametrize("data", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_node_that_cannot_be_read_is_nobodys_and_never_taken_over(
    tree: Tree, data: bytes
) -> None:
    path = node_path(tree, "key")
    tree.client.create(path, data, makepath=True)
    lease = zk_lease("key", LONG, owner="me", timeout=0.1)
    assert not lease.acquire()
    with pytest.raises(LockBusy, match="delete it by hand") as busy, lease:
        pass
    assert path in str(busy.value)
    holder = lease.holder()
    assert holder is not None
    assert holder.peer
    assert holder.expires is None
    assert tree.client.get(path)[0] == data
