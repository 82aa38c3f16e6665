"""The tools of these tests: a real broker, real workers, and a stage for their tasks."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.celery_tools import PATIENCE, fleet
from tests.kit.helpers import alive, eventually, spawn_python
from tests.kit.services import Redis, RedisNotInstalled

if TYPE_CHECKING:
    from distlock_chaos.server import ZooKeeper


def test_a_task_plays_in_a_child_of_a_worker_that_ends_in_order(
    zookeeper: ZooKeeper, redis: Redis, tmp_path: Path
) -> None:
    with fleet(zookeeper, tmp_path, redis.new_database()) as one, one.worker() as worker:
        result = one.task("play").delay("ada")
        entry = one.stage.await_entry("ada")
        assert entry.pid != worker.process.pid
        one.stage.let_go("ada")
        assert result.get(timeout=PATIENCE) == "ada"
        worker.stop()
        assert not alive(entry.pid)
    assert [line.facts for line in one.stage.told("ada")] == [("enter",), ("leave",)]


def test_redis_ends_with_a_parent_that_is_killed(redis: Redis) -> None:
    del redis  # It skips this test where there is no Redis.
    code = (
        "import time; from tests.kit.services import Redis; server = Redis().start()\n"
        "print(server._process.pid, server._folder, server.port); time.sleep(60)"
    )
    with spawn_python(code) as parent:
        assert parent.stdout is not None
        pid, folder, port = parent.stdout.readline().split()
        with socket.create_connection(("127.0.0.1", int(port)), timeout=5):
            parent.kill()
        eventually(lambda: not alive(int(pid)), 15)
        eventually(lambda: not Path(folder).exists(), 15)


def test_without_redis_the_message_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RedisNotInstalled, match="apt-get install redis-server"):
        Redis().start()
