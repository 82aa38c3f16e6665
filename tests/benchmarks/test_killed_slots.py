"""The comparison of killed slots measures what its page says."""

from __future__ import annotations

import pytest

from benchmarks import killed_slots
from benchmarks.contenders.slots import LIBRARIES
from distlock_chaos.server import ZooKeeper


@pytest.mark.engines("zookeeper", "redis", postgresql=False)
def test_the_slot_of_a_killed_process_is_in_use_before_its_session_has_timed_out(
    zookeeper: ZooKeeper,
) -> None:
    assert killed_slots.kill({"redis": zookeeper.hosts}, "key")["redis"] < 5


def test_the_page_has_each_library() -> None:
    page = killed_slots.PAGE.read_text()
    assert [f"| {one.name} " in page for one in LIBRARIES.values()] == [True] * len(LIBRARIES)
