"""The contract of `distlock.engine.protocol`, on every engine."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from kazoo.exceptions import EXCEPTIONS, APIError

from distlock.engine.errors import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    NotEmpty,
    failure,
    refusal,
)
from distlock.engine.protocol import EPHEMERAL, SEQUENTIAL, EngineClient, Requests
from distlock.engine.redis.client import RedisClient
from distlock.engine.reply import Reply
from distlock.engine.zookeeper.client import Client
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE
from tests.testing.sides import Side, configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.testing import EmbeddedProcess

CLIENTS = [Client, RedisClient]


def members(protocol: type) -> dict[str, Any]:
    return {name: one for name, one in vars(protocol).items() if not name.startswith("_")}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_has_what_the_protocol_has(client: type) -> None:
    for name, member in {**members(Requests), **members(EngineClient)}.items():
        own = inspect.getattr_static(client, name, None)
        if inspect.isfunction(member):
            assert own is not None, name
            assert inspect.signature(own) == inspect.signature(member), name


class Engine:
    """Two sessions on one engine, under a node of their own."""

    def __init__(self, make: Callable[..., Any], hosts: str) -> None:
        self.root = f"/contract-{uuid4()}"
        self.one, self.two = (Side(make, configuration(hosts)) for _ in range(2))
        assert isinstance(self.one.ask(lambda make: make.node(self.root, b"")), tuple)

    def names(self) -> list[str]:
        names: list[str] = self.two.ask(lambda make: make.listing(self.root))
        return sorted(names)


@pytest.fixture(params=["zookeeper", "zookeeper_embedded", "redis"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    make: Callable[..., Any] = Client
    match request.param:
        case "redis":
            make, hosts = RedisClient, request.getfixturevalue("redis").new_database()
        case name:
            hosts = request.getfixturevalue(name).hosts
    engine = Engine(make, hosts)
    yield engine
    for side in (engine.one, engine.two):
        side.client.say_goodbye(PATIENCE)


def test_a_client_tells_a_session_of_itself(engine: Engine) -> None:
    properties = [n for n, one in members(EngineClient).items() if isinstance(one, property)]
    assert [name for name in properties if not hasattr(engine.one.client, name)] == []
    assert engine.one.client.credentials[0] == engine.one.client.session_id
    assert engine.one.client.session_timeout > 0
    assert engine.one.client.server


def test_contenders_are_numbered_in_their_order(engine: Engine) -> None:
    prefix = f"{engine.root}/lock-"
    made = [
        side.ask(lambda make: make.node(prefix, b"data", EPHEMERAL | SEQUENTIAL))
        for side in (engine.one, engine.two, engine.one)
    ]
    assert [path for path, _ in made] == [f"{prefix}{number:010d}" for number in range(3)]
    stats = [stat for _, stat in made]
    assert [stat.czxid for stat in stats] == sorted({stat.czxid for stat in stats})
    owners = [engine.one.client.session_id, engine.two.client.session_id]
    assert [stat.ephemeralOwner for stat in stats] == [owners[0], owners[1], owners[0]]


def test_requests_that_go_together_are_answered_in_their_order(engine: Engine) -> None:
    client = engine.one.client
    name = f"{engine.root}/node"
    (path, stat), names, deleted, gone = engine.one.ask_all(
        [
            client.node(name, b"x", EPHEMERAL),
            client.listing(engine.root),
            client.deletion(name),
            client.reading(name),
        ]
    )
    assert (path, stat.dataLength, names) == (name, 1, ["node"])
    assert deleted is True
    assert isinstance(gone, NoNode)


def test_errors_have_their_names(engine: Engine) -> None:
    ask, root = engine.one.ask, engine.root
    ask(lambda make: make.node(f"{root}/a", b""))
    wrong: list[tuple[type[Exception], Callable[[Any], Any]]] = [
        (NodeExists, lambda make: make.node(f"{root}/a", b"")),
        (NoNode, lambda make: make.node(f"{root}/b/c", b"")),
        (NoNode, lambda make: make.listing(f"{root}/b")),
        (NotEmpty, lambda make: make.deletion(root)),
        (BadVersion, lambda make: make.writing(f"{root}/a", b"", 7)),
        (BadVersion, lambda make: make.deletion(f"{root}/a", 7)),
    ]
    for error, request in wrong:
        assert isinstance(ask(request), error)


def test_an_error_that_an_old_kazoo_does_not_know_is_an_api_error(
    zookeeper_embedded: EmbeddedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_watcher = -121
    monkeypatch.delitem(EXCEPTIONS, no_watcher, raising=False)
    side = Side(Client, configuration(zookeeper_embedded.hosts))
    assert type(side.ask(lambda make: make.unwatching("/"))) is APIError
    side.client.say_goodbye(PATIENCE)


def test_ephemeral_nodes_go_with_their_session_and_others_stay(engine: Engine) -> None:
    engine.one.ask(lambda make: make.node(f"{engine.root}/mine", b"", EPHEMERAL))
    engine.one.ask(lambda make: make.node(f"{engine.root}/lasting", b""))
    assert engine.one.client.say_goodbye(PATIENCE)
    assert engine.names() == ["lasting"]


def test_a_watch_fires_once_and_between_the_answers(engine: Engine) -> None:
    path, heard = f"{engine.root}/node", list[bool]()
    engine.one.ask(lambda make: make.node(path, b"", EPHEMERAL))
    engine.two.ask(lambda make: make.reading(path, heard.append))
    engine.two.ask(lambda make: make.listing(engine.root, heard.append))
    engine.one.ask(lambda make: make.writing(path, b"x", -1))
    engine.one.ask(lambda make: make.writing(path, b"y", -1))
    assert engine.two.ask(lambda make: make.reading(path))[0] == b"y"
    assert heard == [False]
    engine.two.ask(lambda make: make.reading(path, heard.append))
    engine.one.ask(lambda make: make.deletion(path))
    assert engine.names() == []
    assert sorted(heard) == [False, False, True]


def test_a_watch_that_was_removed_is_silent(engine: Engine) -> None:
    path, heard = f"{engine.root}/node", list[bool]()
    engine.one.ask(lambda make: make.node(path, b"", EPHEMERAL))
    engine.two.ask(lambda make: make.reading(path, heard.append))
    engine.two.ask(lambda make: make.unwatching(path))
    engine.two.client.forget_watchers(path)
    engine.one.ask(lambda make: make.deletion(path))
    assert engine.names() == []
    assert heard == []


def test_a_transaction_is_carried_out_wholly_or_not_at_all(engine: Engine) -> None:
    ask, root = engine.one.ask, engine.root
    outcomes = ask(lambda make: make.multi([make.node(f"{root}/a"), make.presence(f"{root}/b")]))
    assert isinstance(failure(outcomes), NoNode)
    assert engine.names() == []
    outcomes = ask(lambda make: make.multi([make.node(f"{root}/a"), make.presence(root)]))
    assert failure(outcomes) is None
    assert engine.names() == ["a"]


@pytest.mark.parametrize("by_write", [False, True])
def test_a_living_session_can_be_proven(engine: Engine, by_write: bool) -> None:
    answer = engine.one.ask(lambda make: make.proof(engine.root, by_write=by_write))
    assert not isinstance(answer, BaseException)
    assert refusal(answer) is None


def test_a_lost_connection_is_reported_before_what_is_lost_with_it(engine: Engine) -> None:
    side, told = engine.one, list[str]()
    changed = side._changed

    def note(connected: bool, session_id: int) -> None:
        told.append("up" if connected else "down")
        changed(connected, session_id)

    side.client._changed = note
    before = side.client.session_id
    side.ask(lambda make: make.reading(engine.root, lambda _: told.append("watch")))
    side.client.soon(lambda: lose_with_a_request(side, told))
    eventually(lambda: told[-1:] == ["up"], PATIENCE, lambda: f"a connection after {told}")
    assert sorted(told[1:3]) == ["reply", "watch"]
    assert (told[0], told[3:]) == ("down", ["up"])
    assert side.client.session_id == before
    assert isinstance(side.ask(lambda make: make.reading(engine.root)), tuple)


def lose_with_a_request(side: Side, told: list[str]) -> None:
    """Ask for something, and lose the connection before it is sent; on the connection thread."""

    def done(value: Any, error: BaseException | None) -> None:
        assert isinstance(error, ConnectionLost), (value, error)
        told.append("reply")

    side.client.drop()
    reply = Reply(done, None, lambda _: None, side.client.session_id)
    side.client.submit((side.client.syncing("/"), reply))
