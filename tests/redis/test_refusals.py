"""What a server refuses that may not write, or has no memory, whatever the script does first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis as RedisPy
from redis.exceptions import ReadOnlyError, ResponseError

from distlock.engine.protocol import CONTAINER, EPHEMERAL, SEQUENTIAL
from distlock.engine.redis.requests import Requests
from tests.kit.services import Redis
from tests.redis.test_endings import Sessions

MAKE = Requests()
TAKES_MEMORY: list[Callable[[], Any]] = [
    lambda: MAKE.node("/line/lock-", b"", EPHEMERAL | SEQUENTIAL),
    lambda: MAKE.node("/line/other", b""),
    lambda: MAKE.node("/another", b"", CONTAINER),
    lambda: MAKE.writing("/line", b"x", -1),
    lambda: MAKE.multi([MAKE.presence("/line"), MAKE.node("/line/other")]),
]
TAKES_NONE: list[Callable[[], Any]] = [
    lambda: MAKE.reading("/line", print),
    lambda: MAKE.listing("/", print),
    lambda: MAKE.unwatching("/line"),
    lambda: MAKE.presence("/line"),
    lambda: MAKE.deletion("/line/lock-0000000000"),
    lambda: MAKE.deletion("/line"),
    lambda: MAKE.deletion("/missing"),
    lambda: MAKE.proof("/", by_write=False),
]


@pytest.fixture
def asked() -> Iterator[tuple[Redis, Callable[[Any], Any]]]:
    """A server, and what asks it something in a session; there is a line with a node."""
    with Redis() as server:
        sessions = Sessions(server.hosts)
        session = sessions.begin(connected=False, seconds=60)
        sessions.ask(session, MAKE.node("/line", b"", CONTAINER))
        sessions.ask(session, MAKE.node("/line/lock-", b"", EPHEMERAL | SEQUENTIAL))
        sessions.ask(session, MAKE.reading("/line", print))
        yield server, lambda request: sessions.ask(session, request)
        sessions.channels.close()
        sessions.server.close()


def test_without_memory_all_is_done_that_makes_room(asked: tuple[Any, Any]) -> None:
    server, ask = asked
    server.ask("CONFIG", "SET", "maxmemory", 1)
    for request in TAKES_MEMORY:
        before = everything(server)
        with pytest.raises(ResponseError, match="memory"):
            ask(request())
        assert everything(server) == before
    for request in TAKES_NONE:
        ask(request())


@pytest.mark.parametrize("request_of", TAKES_MEMORY + TAKES_NONE)
def test_a_server_that_was_demoted_answers_nothing(
    asked: tuple[Any, Any], request_of: Callable[[], Any]
) -> None:
    """What it says may be old."""
    server, ask = asked
    server.ask("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises((ReadOnlyError, ResponseError), match=r"READONLY|read.only"):
        ask(request_of())


def everything(server: Redis) -> list[Any]:
    client: Any = RedisPy(port=server.port)
    with client:
        return [client.dump(key) for key in sorted(client.keys())]
