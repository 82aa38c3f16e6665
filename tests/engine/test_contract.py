"""The contract of `distlock.engine.protocol`, on every engine."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import EXCEPTIONS, APIError

import distlock
from distlock.conf import Configuration
from distlock.embedded.server import EmbeddedZooKeeper
from distlock.engine import hosts
from distlock.engine.postgresql import engine as postgresql_engine
from distlock.engine.postgresql import settings as postgresql_settings
from distlock.engine.postgresql.client import PostgresClient
from distlock.engine.protocol import Engine, EngineClient, Requests, Settings
from distlock.engine.redis import engine as redis_engine
from distlock.engine.redis import settings as redis_settings
from distlock.engine.redis.client import RedisClient
from distlock.engine.zookeeper import engine as zookeeper_engine
from distlock.engine.zookeeper import settings as zookeeper_settings
from distlock.engine.zookeeper.client import Client
from distlock.testing import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.testing import EmbeddedProcess
    from distlock_chaos.server import ZooKeeper
    from tests.kit.services import Postgres, Redis

CLIENTS = [Client, RedisClient, PostgresClient]
# The type checker compares them.
ENGINES: list[Engine] = [zookeeper_engine, redis_engine, postgresql_engine]
SETTINGS: list[Settings] = [zookeeper_settings, redis_settings, postgresql_settings]


def members(protocol: type) -> dict[str, Any]:
    return {name: one for name, one in vars(protocol).items() if not name.startswith("_")}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_has_what_the_protocol_has(client: type) -> None:
    for name, member in {**members(Requests), **members(EngineClient)}.items():
        own = inspect.getattr_static(client, name, None)
        if inspect.isfunction(member):
            assert own is not None, name
            assert inspect.signature(own) == inspect.signature(member), name


def test_each_engine_that_can_be_chosen_is_compared_with_the_protocol() -> None:
    modules = [import_module(f"distlock.engine.{name}.engine") for name in hosts.ENGINES]
    assert modules == ENGINES
    assert [hosts.settings_in(name) for name in hosts.ENGINES] == SETTINGS


# --- the promises, on each kind of server --------------------------------------------------------


@pytest.fixture(scope="class")
def _zookeeper(request: pytest.FixtureRequest, zookeeper: ZooKeeper) -> None:
    request.cls.hosts = zookeeper.hosts


@pytest.fixture(scope="class")
def _embedded(request: pytest.FixtureRequest, zookeeper_embedded: EmbeddedProcess) -> None:
    request.cls.hosts = zookeeper_embedded.hosts


@pytest.fixture(scope="class")
def _memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """As `memory_zookeeper` makes it."""
    with EmbeddedZooKeeper(session_timeouts=(0.0, inf), patient=True) as server:
        request.cls.hosts = server.hosts
        yield


@pytest.fixture(scope="class")
def _redis(request: pytest.FixtureRequest, redis: Redis) -> None:
    request.cls.hosts = redis.new_database()


@pytest.fixture(scope="class")
def _postgresql(request: pytest.FixtureRequest, postgres: Postgres) -> None:
    request.cls.hosts = postgres.new_database()


@pytest.mark.usefixtures("_zookeeper")
class TestZooKeeper(engine.EngineTestCase):
    pass


@pytest.mark.usefixtures("_embedded")
class TestEmbedded(engine.EngineTestCase):
    pass


@pytest.mark.usefixtures("_memory")
class TestMemory(engine.EngineTestCase):
    pass


@pytest.mark.usefixtures("_redis")
class TestRedis(engine.EngineTestCase):
    pass


@pytest.mark.usefixtures("_postgresql")
class TestPostgreSQL(engine.EngineTestCase):
    pass


def test_an_error_that_an_old_kazoo_does_not_know_is_an_api_error(
    zookeeper_embedded: EmbeddedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_watcher = -121
    monkeypatch.delitem(EXCEPTIONS, no_watcher, raising=False)
    side = engine.Side(Configuration(hosts=zookeeper_embedded.hosts))
    assert type(side.ask(lambda make: make.unwatching("/"))) is APIError
    side.close()


# --- nothing above asks which engine it is -------------------------------------------------------

PACKAGE = Path(distlock.__file__).parent
#: Names of the servers that tests and `server` start.
STARTED = r"(EmbeddedZooKeeper(TestCase)?|(embedded_|memory_)?zookeeper(_embedded)?)"
ENGINE = r"(?i)redis|zookeeper|engine\.postgresql"


def questions(source: str) -> list[str]:
    """Return what asks which engine it is: imports of one, its names, and comparisons with them."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(name)):
                found += re.findall(ENGINE, name)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found += [] if re.fullmatch(STARTED, name) else re.findall(ENGINE, name)
            case ast.Compare() if "connection.vendor" not in ast.unparse(node):  # of a user's rows
                found += re.findall(f"{ENGINE}|://", ast.unparse(node))
    return found


def test_nothing_above_the_engines_asks_which_one_it_is() -> None:
    beside = {"engine", "migrations"}  # which ask a database
    above = [path for path in PACKAGE.rglob("*.py") if not beside & {*path.parts}]
    asked = {str(path): questions(path.read_text()) for path in above}
    assert len(asked) > 100
    assert {path: found for path, found in asked.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from distlock.engine.redis.client import RedisClient",
        "from .engine.zookeeper import ensemble",
        "is_redis(conf)",
        "rules.REDIS",
        "conf.engine == 'redis'",
        "'://' in conf.hosts",
    ],
)
def test_such_a_question_is_found(source: str) -> None:
    assert questions(source)
