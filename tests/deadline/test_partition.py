"""Servers that are cut off from their fellows, and go on talking to their clients.

Through a partitioned follower pings and reads are answered for long after the leader has expired
the session (kazoo's holder and its rival: 5.4 s together); a deposed leader answers ``sync`` too,
and no write. The servers, the proxies and the clients live in a network namespace of their own, in
which packets between servers are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from pytest_django import Settings

from distlock import LockLost, zk_lock
from distlock.contenders.contender import QueuedContender
from distlock.session.registry import close_sessions
from distlock_chaos import network
from distlock_chaos.server import Server, ZooKeeper
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually, raw_client
from tests.kit.losses import AHEAD_OF_RIVAL, Loss, noted, pass_time
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, within

KEY = "key"
T = 6.0


@pytest.fixture(scope="module")
def partitionable() -> Iterator[ZooKeeper]:
    """Three servers in a network of their own, where this thread is too, and all that it starts."""
    if reason := network.missing():
        pytest.skip(f"No partitions here: {reason}.")
    close_sessions()
    # A cut-off server gives up after syncLimit ticks: later than all that happens here.
    with network.own(), ZooKeeper(nodes=3, config={"syncLimit": "20"}) as zookeeper:
        yield zookeeper
        close_sessions()


def connect_to(settings: Settings, *, session_timeout: float = T, **aliases: Server) -> str:
    """Let each alias know one server only, and return their namespace."""
    namespace = f"/t-{uuid4()}"
    options = {"NAMESPACE": namespace, "SESSION_TIMEOUT": session_timeout, "STRICT": False}
    settings.DISTLOCK = {
        alias: {**options, "HOSTS": server.address} for alias, server in aliases.items()
    }
    for alias in aliases:
        await_connection(alias)
    return namespace


def answers(client: KazooClient, path: str) -> bool:
    """Whether a server still shows a node."""
    return client.get_async(path).get(timeout=5) is not None


def test_a_holder_on_a_cut_off_follower_loses_its_hold_before_the_rival_has_it(
    partitionable: ZooKeeper, settings: Settings, losses: list[Loss], make_owner: MakeOwner
) -> None:
    rival, rivals = make_owner(), zk_lock(KEY, using="other")
    follower, *_ = partitionable.followers()
    namespace = connect_to(settings, default=follower, other=partitionable.leader())
    with raw_client(follower.address, timeout=T) as onlooker:  # a kazoo client like any other
        with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
            rivals_turn = noted(rival.submit(rivals.acquire, timeout=PATIENCE))
            Tree(onlooker, namespace).await_line(KEY, 2)
            with network.isolated(follower):
                eventually(lambda: hold.lost, PATIENCE)
                (loss,) = eventually(lambda: losses)
                taken_at = rivals_turn()
                # This is what a holder that trusts kazoo, its reads and its pings goes by.
                assert onlooker.connected
                assert answers(onlooker, hold.path)
        assert taken_at - loss.at > AHEAD_OF_RIVAL
        rival.now(rivals.release)


@pytest.mark.parametrize("strict", first_then_deep([False, True]))
def test_a_deposed_leader_renews_no_lease_where_heartbeats_are_writes(
    partitionable: ZooKeeper, settings: Settings, strict: bool
) -> None:
    leader = partitionable.leader()
    connect_to(settings, default=leader)
    options = {**settings.DISTLOCK["default"], "STRICT": strict}
    settings.DISTLOCK = {"default": options}
    await_connection()
    outcome = pytest.raises(LockLost) if strict else nullcontext()
    with raw_client(leader.address, timeout=T) as onlooker, outcome, zk_lock(KEY) as hold:
        # The heartbeats after this write would wait for it.
        eventually(lambda: onlooker.get(hold.path)[1].version, PATIENCE, "the note of a long hold")
        with network.isolated(leader):
            if strict:
                with within(T * 2 / 3 + 0.5):
                    eventually(lambda: hold.lost, PATIENCE)
                assert onlooker.sync_async("/").get(timeout=5)  # a sync would have been no proof
            else:
                pass_time(T * 2 / 3 + 0.2)
                hold.check()
                assert hold.valid_for() > 0


def restart(servers: list[Server]) -> None:
    """Let servers forget whom they followed, at once instead of after `syncLimit` ticks."""
    for server in servers:
        server.kill()
    for server in servers:
        server.start(wait=False)
    for server in servers:
        server.wait_until_serving()


@pytest.mark.deep
def test_a_deposed_leader_grants_nothing_to_a_waiter_that_stood_still(
    partitionable: ZooKeeper,
    settings: Settings,
    make_owner: MakeOwner,
    monkeypatch: pytest.MonkeyPatch,
    shift_clock: Callable[[float], None],
) -> None:
    """The waiter hears of the release when a new leader has expired its session long ago."""
    holder, waiter, rival, others = (*(make_owner() for _ in range(3)), zk_lock(KEY, using="other"))
    leader, followers = partitionable.leader(), partitionable.followers()
    # No session but the waiter's ends: the deposed leader would wait for a majority to agree.
    namespace = connect_to(settings, session_timeout=20, default=leader, other=followers[0])
    settings.DISTLOCK = {
        **settings.DISTLOCK,
        "default": {**settings.DISTLOCK["default"], "SESSION_TIMEOUT": T},
    }
    mine = await_connection()
    news: list[Callable[[], None]] = []
    changed = QueuedContender._changed

    def hear(contender: QueuedContender, *what: Any) -> None:
        heard = partial(changed, contender, *what)
        news.append(heard) if contender.session is mine else heard()

    monkeypatch.setattr(QueuedContender, "_changed", hear)
    with raw_client(followers[1].address, timeout=20) as onlooker:
        tree = Tree(onlooker, namespace)
        holder.now(others.acquire)
        granted = waiter.submit(zk_lock(KEY).acquire, timeout=3 * PATIENCE)
        eventually(lambda: mine.watches.watchers and not mine._in_flight, PATIENCE)
        holder.now(others.release)
        eventually(lambda: news, PATIENCE)
        with network.isolated(leader):
            restart(followers)
            await_connection("other")
            assert rival.now(others.acquire, timeout=PATIENCE)
            assert mine.connected
            shift_clock(T)
            monkeypatch.setattr(QueuedContender, "_changed", changed)
            mine.soon(news.pop())
            pass_time(T / 2)
            assert not granted.done()
        tree.await_line(KEY, 2)
        assert not granted.done()
        rival.now(others.release)
        assert granted.result(PATIENCE)
        waiter.now(zk_lock(KEY).release)
        tree.await_line(KEY, 0)
