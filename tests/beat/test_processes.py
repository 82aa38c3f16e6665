"""Beats on two hosts, which are processes with schedule files of their own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pytest_django import Settings

from distlock import zk_leader
from distlock.locks.leader import Leader
from distlock.session.registry import close_sessions
from distlock_chaos.guard import GuardedProcess
from distlock_chaos.server import ZooKeeper
from tests.beat.tools import EVERY_MOMENT, PATIENCE, Sent, beat
from tests.kit.celery_tools import fleet
from tests.kit.helpers import eventually
from tests.kit.services import Redis

pytestmark = pytest.mark.deep


#: ZooKeeper grants 40 s, so a session that nobody ends is there for longer than this.
AT_ONCE = 20.0


class Pair(NamedTuple):
    """Two beats: the first leads, the second waits in line."""

    first: GuardedProcess
    second: GuardedProcess
    sent: Sent
    leader: Leader


@pytest.fixture
def pair(
    zookeeper: ZooKeeper, redis: Redis, tmp_path: Path, settings: Settings
) -> Iterator[Callable[[float], AbstractContextManager[Pair]]]:
    """Starts a `Pair` with a session timeout."""

    @contextmanager
    def start(session_timeout: float) -> Iterator[Pair]:
        with ExitStack() as stack:
            host = stack.enter_context(
                fleet(
                    zookeeper,
                    tmp_path,
                    redis.new_database(),
                    celery={"beat_schedule": EVERY_MOMENT},
                    SESSION_TIMEOUT=session_timeout,
                )
            )
            settings.DISTLOCK = host.distlock
            sent, leader = Sent(host), zk_leader("beat:testproject")
            stack.callback(sent.close)
            beats = [stack.enter_context(beat(host, name)) for name in ("one", "another")]
            await_line(leader, 2)
            first = leader.leader()
            assert first is not None
            beats.sort(key=lambda process: process.pid != first.pid)
            yield Pair(beats[0], beats[1], sent, leader)

    yield start
    close_sessions()


def await_line(leader: Leader, length: int) -> None:
    eventually(lambda: len(leader.participants()) == length, PATIENCE, f"{length} beats in line")


def test_one_sends_and_the_next_one_does_when_it_ends_in_order(
    pair: Callable[[float], AbstractContextManager[Pair]],
) -> None:
    with pair(40) as (first, second, sent, leader):
        sent.await_more(first, 10)
        assert set(sent.by()) == {first.pid}
        here = leader.leader()
        assert here is not None
        assert (here.pid, here.label) == (first.pid, "celery beat")
        first.send(signal.SIGTERM)
        sent.await_more(second, patience=AT_ONCE)
        first.wait(PATIENCE)
        by = sent.by()
        assert by == sorted(by, key=[first.pid, second.pid].index)


def test_the_next_one_takes_over_from_a_killed_one_at_once(
    pair: Callable[[float], AbstractContextManager[Pair]],
) -> None:
    """The session reaper beside the killed beat ends its session."""
    with pair(40) as (first, second, sent, _):
        sent.await_more(first)
        first.send(signal.SIGKILL)
        first.wait(PATIENCE)
        sent.await_more(second, patience=AT_ONCE)


def test_one_that_was_stopped_sends_no_more_and_stands_in_line_again(
    pair: Callable[[float], AbstractContextManager[Pair]],
) -> None:
    with pair(4) as (first, second, sent, leader):
        sent.await_more(first)
        first.send(signal.SIGSTOP)
        sent.await_more(second)
        before = sent.by().count(first.pid)
        first.send(signal.SIGCONT)
        await_line(leader, 2)
        sent.await_more(second)
        assert sent.by().count(first.pid) == before
        second.send(signal.SIGTERM)
        sent.await_more(first)
