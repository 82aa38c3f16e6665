"""A session ends when its client is gone or does not answer, whoever comes, and no other does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis as RedisPy

from distlock.conf import Configuration
from distlock.engine.redis.library import CODE
from distlock.engine.redis.requests import (
    Requests,
    beginning,
    call,
    good_bye,
    prefix,
    session_arguments,
)
from distlock.session.reaper import end_session
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE
from tests.redis.test_many import MANY
from tests.testing.sides import Side

#: Seconds.
SESSION_TIMEOUT = 0.6


class Sessions:
    """Sessions that ping only when a test says so.

    :ivar conf: of their clients
    :ivar server: a client of the server's other commands
    """

    def __init__(self, hosts: str) -> None:
        self.conf = Configuration(hosts=hosts, session_timeout=SESSION_TIMEOUT)
        server: Any = RedisPy.from_url(hosts)
        server.script_load(CODE)
        self.server, self.channels = server, server.pubsub()
        self._number = 2**61

    def begin(
        self, *, connected: bool = True, seconds: float = SESSION_TIMEOUT
    ) -> tuple[bytes, ...]:
        """Begin a session, and return the arguments of its calls."""
        self._number += 1
        conf = replace(self.conf, session_timeout=seconds)
        session = session_arguments(conf, self._number, b"", 1)
        if connected:
            self.channels.subscribe(prefix(conf) + b"events:%d" % self._number)
            assert self.channels.get_message(timeout=PATIENCE)["type"] == "subscribe"
        self.ask(session, beginning(conf, None))
        return session

    def ask(self, session: tuple[bytes, ...], request: Any) -> Any:
        return self.server.execute_command(*call(session, request))

    def ping(self, session: tuple[bytes, ...]) -> None:
        self.ask(session, Requests().proof("", by_write=True))

    def come(self) -> None:
        """Come and go, as a process does that only tries."""
        self.ask(self.begin(connected=False, seconds=PATIENCE), good_bye())

    def alive(self, *sessions: tuple[bytes, ...]) -> int:
        """Return how many of them the server has."""
        state = prefix(self.conf) + b"state"
        return sum(map(bool, self.server.hmget(state, [token for _, token, *_ in sessions])))

    def asked(self) -> int:
        """Return how many were asked whether they live, since the last look."""
        count = 0
        while message := self.channels.get_message(timeout=0.1):
            count += message["data"] == b"P"
        return count

    def deadline(self, session: tuple[bytes, ...]) -> float:
        return float(self.server.zscore(prefix(self.conf) + b"sessions", session[1]))

    def await_missed(self, *sessions: tuple[bytes, ...]) -> None:
        """Wait until they have missed their deadlines, as a clock that is set makes them."""
        latest = max(map(self.deadline, sessions))

        def missed() -> bool:
            seconds, rest = self.server.time()
            return bool(seconds * 1_000_000 + rest > latest)

        eventually(missed, PATIENCE, "a deadline")


@pytest.fixture
def sessions(redis: Redis) -> Iterator[Sessions]:
    sessions = Sessions(redis.new_database())
    yield sessions
    sessions.channels.close()
    sessions.server.close()


@pytest.mark.parametrize("how", ["connects", "pings"])
def test_whoever_comes_asks_before_it_ends_a_session(sessions: Sessions, how: str) -> None:
    newcomer = sessions.begin(connected=False, seconds=PATIENCE)
    session = sessions.begin()
    sessions.await_missed(session)
    if how == "pings":
        sessions.ping(newcomer)
    else:
        sessions.come()
    assert sessions.asked() == 1
    sessions.ping(session)
    sessions.ping(newcomer)
    assert sessions.alive(session)
    sessions.await_missed(session)
    sessions.ping(newcomer)
    assert sessions.asked() == 1  # again
    sessions.await_missed(session)
    sessions.ping(newcomer)
    assert not sessions.alive(session)


def test_many_are_asked_before_they_end(sessions: Sessions) -> None:
    some = [sessions.begin(seconds=PATIENCE) for _ in range(2 * MANY + 50)]
    key = prefix(sessions.conf) + b"sessions"
    sessions.server.zadd(key, {token: 1 for _, token, *_ in some})  # a clock that is set ahead
    for _ in range(3):
        sessions.begin(connected=False, seconds=PATIENCE)
        assert sessions.alive(*some) == len(some)
    assert sessions.asked() == len(some)


def test_a_client_that_does_not_answer_is_asked_once_whoever_comes(sessions: Sessions) -> None:
    session = sessions.begin()
    begun = time.monotonic()

    def ended() -> bool:
        sessions.come()
        return not sessions.alive(session)

    eventually(ended, 5 * SESSION_TIMEOUT, "the end of a session")
    assert time.monotonic() - begun > SESSION_TIMEOUT
    assert sessions.asked() == 1


def test_who_hears_all_channels_keeps_no_session(sessions: Sessions) -> None:
    session = sessions.begin(connected=False)
    with sessions.server.pubsub() as monitor:
        monitor.psubscribe("*")
        assert monitor.get_message(timeout=PATIENCE)
        sessions.await_missed(session)
        sessions.come()
        assert not sessions.alive(session)


def test_a_session_that_ends_itself_is_not_asked(sessions: Sessions) -> None:
    session = sessions.begin()
    sessions.ask(session, good_bye())
    assert not sessions.alive(session)
    assert not sessions.asked()


def test_a_ping_that_was_asked_for_ends_no_grace_period(sessions: Sessions) -> None:
    sessions.begin(connected=False, seconds=PATIENCE)
    session = sessions.begin()
    state = prefix(sessions.conf) + b"state"
    sessions.server.hset(state, "run", "another:-1")
    sessions.come()
    grace = sessions.server.hget(state, "grace")
    sessions.ping(session)
    sessions.await_missed(session)
    sessions.come()
    assert sessions.asked() == 1
    sessions.ping(session)
    assert sessions.server.hget(state, "grace") == grace


def test_a_request_that_is_packed_again_sets_no_deadline(sessions: Sessions) -> None:
    """As it is where the wire is busy; two threads may also pack and send in another order."""
    dead = sessions.begin(seconds=PATIENCE)
    side = Side(replace(sessions.conf, session_timeout=6 * SESSION_TIMEOUT))
    before, begun = sessions.deadline(dead), time.monotonic()
    eventually(lambda: time.monotonic() - begun > 1.2 * SESSION_TIMEOUT, PATIENCE)
    side.client._connection.packed(side.client.proof("", by_write=True))
    assert isinstance(side.ask(lambda make: make.proof("", by_write=True)), int)
    assert sessions.deadline(dead) == before
    side.client.say_goodbye(1)


def test_who_ends_a_session_waits_for_a_client_that_loads_the_script() -> None:
    """A server that has started again has none."""
    with Redis() as server, ThreadPoolExecutor() as pool:
        sessions = Sessions(server.hosts)
        session = sessions.begin(connected=False, seconds=6 * PATIENCE)
        sessions.server.script_flush()
        ended = pool.submit(end_session, sessions.conf, int(session[-1]), b"", PATIENCE)
        eventually(lambda: commands(sessions.server, "evalsha", "failed_calls") > 1, PATIENCE)
        assert not ended.done()
        sessions.server.script_load(CODE)
        assert ended.result(PATIENCE)
        assert not sessions.alive(session)
        sessions.channels.close()
        sessions.server.close()


def commands(server: Any, name: str, which: str) -> int:
    found: dict[str, int] = server.info("commandstats").get(f"cmdstat_{name}", {which: 0})
    return found[which]
