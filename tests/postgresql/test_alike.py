"""PostgreSQL and a real ZooKeeper get the same requests and give the same answers.

As Redis does: hypothesis chooses the requests, on two sessions of each. The numbers of changes are
not compared: each step of a transaction has one of its own here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distlock.engine.postgresql import client
from distlock.engine.postgresql.requests import Request
from distlock_chaos.server import ZooKeeper
from tests.kit.services import Postgres
from tests.redis.test_alike import Alike, lasting_containers
from tests.testing.alike import compare
from tests.testing.sides import World

__all__ = ["lasting_containers"]


told = World.told


def without_numbers(world: World, *about: Any) -> dict[str, Any]:
    return {name: fact for name, fact in told(world, *about).items() if name != "zxids"}


@pytest.mark.timeout(600)
@pytest.mark.deep
def test_postgresql_and_a_real_server_are_alike(
    lasting_containers: ZooKeeper,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "EXPIRE", Request("expire", ("3600000",)))
    monkeypatch.setattr(World, "told", without_numbers)
    hosts = postgres.new_database()
    database = SimpleNamespace(new_database=lambda: hosts)
    facts = {"hosts": lasting_containers.hosts, "redis": database}
    compare(type("Machine", (Alike,), facts))
