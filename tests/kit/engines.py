"""Runs a module's tests on several kinds of server, in its own folder and with its own fixtures.

``pytestmark = pytest.mark.engines("zookeeper", "redis")`` in a module runs each test that asks for
the fixture `zookeeper` once with each kind; the same mark on a test says which of them it is for.
What runs on Redis runs on PostgreSQL, too, but where ``postgresql=False`` says that the programs of
a test do not know its databases, or that it is about something else.
`make test` runs it with the first kind, and `make test-all` with each.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from distlock.engine.redis.requests import USUAL_SECONDS

from .helpers import eventually, raw_client
from .postgres_looker import PostgresLooker
from .redis_looker import RedisLooker
from .tools import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distlock_chaos.server import ZooKeeper

    from .services import Postgres, Redis


def first_then_deep(values: Iterable[Any]) -> list[Any]:
    """Return values for `parametrize`, of which all but the first are for `make test-all`."""
    first, *others = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*first), *(pytest.param(*one, marks=pytest.mark.deep) for one in others)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the fixture `zookeeper` each kind of server that the closest mark names."""
    mark = metafunc.definition.get_closest_marker("engines")
    if mark is not None and "zookeeper" in metafunc.fixturenames:
        also = mark.kwargs.get("postgresql", "redis" in mark.args)
        kinds = first_then_deep([*mark.args, *["postgresql"] * also])
        metafunc.parametrize("zookeeper", kinds, indirect=True, scope="module")


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest) -> ZooKeeper:
    """The server of the run, or a database of another kind in its place."""
    kind = getattr(request, "param", "zookeeper")
    if kind == "redis":
        return in_place_of_zookeeper(request.getfixturevalue("redis"))
    if kind == "postgresql":
        return served_by(request.getfixturevalue("postgres"))
    server: ZooKeeper = request.getfixturevalue("real_zookeeper")
    return server


def in_place_of_zookeeper(redis: Redis) -> ZooKeeper:
    """Return what tests want of a server: where it is, once it grants locks to any process."""
    eventually(lambda: redis.ask("INFO", "server")["uptime_in_seconds"] > USUAL_SECONDS + 1)
    return served_by(redis)


def served_by(server: Postgres | Redis) -> ZooKeeper:
    """Return what tests want of a server, for a new database."""
    one = SimpleNamespace(port=server.port)
    return cast("ZooKeeper", SimpleNamespace(hosts=server.new_database(), servers=[one]))


@contextmanager
def tree_at(hosts: str, namespace: str) -> Iterator[Tree]:
    """Yield a namespace, whichever server has it."""
    looker: Any
    if hosts.startswith("database:"):
        looker = PostgresLooker(hosts, namespace)
    else:
        looker = RedisLooker(hosts, namespace) if "://" in hosts else raw_client(hosts)
    with looker as client:
        yield Tree(client, namespace)
