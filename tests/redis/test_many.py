"""The server removes masses of nodes a little at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis as RedisPy

from distlock.engine.protocol import CONTAINER, EPHEMERAL, SEQUENTIAL
from distlock.engine.redis import requests
from distlock.engine.redis.requests import Requests, beginning, call, session_arguments
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE
from tests.redis.test_joining import PARENT, PREFIX, Contender
from tests.testing.sides import Side, configuration

pytestmark = pytest.mark.deep

#: The nodes that one call removes, as tree.lua says.
MANY = 200


@pytest.fixture
def side(redis: Redis) -> Iterator[Side]:
    """A session, and a node whose children it makes."""
    side = Side(configuration(redis.new_database()))
    side.ask(lambda make: make.node(PARENT, flags=CONTAINER))
    yield side
    side.client.say_goodbye(1)


@pytest.fixture
def server(side: Side) -> Iterator[Any]:
    """A client of the server's other commands."""
    client: Any = RedisPy.from_url(side.conf.hosts)
    with client:
        yield client


def let_die(server: Any, side: Side, sessions: int, nodes: int) -> None:
    """Make contenders in the line, of sessions that are over at once."""
    conf = replace(side.conf, session_timeout=0.001)
    queued = 8  # `requests._QUEUED`
    create = Requests().node(PREFIX, b"", EPHEMERAL | SEQUENTIAL | queued)
    with server.pipeline(transaction=False) as pipeline:
        for number in range(sessions):
            session = session_arguments(conf, 2**61 + number, b"", 1)
            pipeline.execute_command(*call(session, beginning(conf, None)))
            for _ in range(nodes):
                pipeline.execute_command(*call(session, create))
        pipeline.execute()


def ping(side: Side) -> None:
    assert isinstance(side.ask(lambda make: make.proof("", by_write=True)), int)


def nodes(side: Side) -> list[str]:
    names: list[str] = side.ask(lambda make: make.listing(PARENT))
    return names


def calls(server: Any, command: str) -> int:
    """Return how often a command was carried out, in functions too."""
    facts = server.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
    return int(facts["calls"])


@pytest.mark.parametrize(("sessions", "each"), [(1, 2 * MANY + 50), (2 * MANY + 50, 1)])
def test_sessions_that_end_together_end_a_little_at_a_time(
    side: Side, server: Any, sessions: int, each: int
) -> None:
    Contender(side).join()
    let_die(server, side, sessions, each)
    living = Contender(side).join()
    living.watch(f"{PARENT}/{nodes(side)[-2]}")  # one of the dead
    living.await_outcomes(3)
    published = calls(server, "publish")
    # Of a session whose client does not ping again by itself, as ours does.
    session = session_arguments(side.conf, 1, b"", 1)
    server.execute_command(*call(session, beginning(side.conf, None)))
    pinging = call(session, side.client.proof("", by_write=True))
    while (before := len(nodes(side))) > 2:
        answer = server.execute_command(*pinging)
        assert 0 < before - len(nodes(side)) <= MANY
        assert answer == 0 or len(nodes(side)) == 2
    eventually(lambda: living.events, PATIENCE, "the news")
    assert living.events == [True]
    assert calls(server, "publish") - published <= 10


def test_one_living_waiter_hears_once_of_all_that_were_before_it(side: Side, server: Any) -> None:
    let_die(server, side, MANY // 2, 1)
    living = Contender(side).join()
    living.watch(f"{PARENT}/{nodes(side)[-2]}")
    living.await_outcomes(3)
    published = calls(server, "publish")
    ping(side)
    eventually(lambda: living.events, PATIENCE, "the news")
    assert nodes(side) == [living.name]
    assert calls(server, "publish") - published <= 2


def test_idle_containers_go_soon_where_there_are_many(
    side: Side, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "EMPTY_MS", 0)
    for first in range(0, 5 * MANY, MANY):
        side.ask_all(
            [
                side.client.node(f"{PARENT}/{first + number}", flags=CONTAINER)
                for number in range(MANY)
            ]
        )
    assert len(nodes(side)) == 5 * MANY
    prefix = requests.prefix(side.conf).decode()
    ping(side)
    # Sooner than the next ping that is due: the timeout of this session is 30 s.
    eventually(lambda: not server.exists(f"{prefix}c:{PARENT}"), 8, "a tree without containers")
