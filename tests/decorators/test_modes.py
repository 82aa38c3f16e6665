"""``@zk_locked(…, mode="read")`` shares a lock, and ``mode="write"`` excludes its readers."""

from __future__ import annotations

import asyncio
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockBusy, zk_locked, zk_rwlock

if TYPE_CHECKING:
    from tests.kit.tools import MakeOwner

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

meeting = Barrier(2, timeout=10)


@zk_locked("document:<pk>", mode="read")
def render(pk: int) -> int:
    meeting.wait()
    return pk


@zk_locked("document:<pk>", mode="write", timeout=0)
def rewrite(pk: int) -> bool:
    return zk_rwlock(f"document:{pk}").write.held


def test_readers_are_inside_together_and_a_writer_alone(make_owner: MakeOwner) -> None:
    one, other = make_owner(), make_owner()
    both = [owner.submit(render, 1) for owner in (one, other)]
    assert [each.result(10) for each in both] == [1, 1]
    assert rewrite(1) is True
    with zk_rwlock("document:1").read:
        assert isinstance(one.submit(rewrite, 1).exception(10), LockBusy)


def test_coroutines_share_it_too() -> None:
    inside = 0

    @zk_locked("document:<pk>", mode="read")
    async def render(pk: int) -> int:
        nonlocal inside
        inside += 1
        while inside < 2:  # noqa: ASYNC110 - the other one comes in between
            await asyncio.sleep(0.01)
        return pk

    async def main() -> list[int]:
        return list(await asyncio.wait_for(asyncio.gather(render(1), render(1)), 10))

    assert asyncio.run(main()) == [1, 1]


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "shared"},
        {"mode": "read", "handoff": 3},
        {"mode": "write", "fair": False},
        {"mode": "read", "on_busy": "queue"},
    ],
)
def test_what_a_mode_cannot_have_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"mode=|readers"):
        zk_locked("document:<pk>", **how)
