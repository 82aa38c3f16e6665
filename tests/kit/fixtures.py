"""Fixtures for all tests: two sessions, owners, a link that breaks, the tree from outside.

A folder overrides some of them in its `conftest`.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import pytest

from distlock import zk_lock
from distlock.engine import timer
from distlock.engine.postgresql import client as postgres
from distlock.engine.postgresql.client import PostgresClient
from distlock.engine.postgresql.requests import Request as PostgresRequest
from distlock.engine.redis import requests as redis_requests
from distlock.engine.redis.client import RedisClient
from distlock.engine.zookeeper.client import Client
from distlock.lease.persistent import PersistentLease
from distlock.session import patience, server_time
from distlock.session.registry import close_sessions
from distlock.signals import lock_acquired, lock_contended, lock_lost, lock_released
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper

from .engines import tree_at
from .helpers import eventually
from .losses import Loss, SetOptions, loss_of
from .permits import Permits
from .tools import PATIENCE, MakeOwner, Owner, Tree, await_connection, record_requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.dispatch import Signal
    from pytest_django import Settings


@pytest.fixture(autouse=True)
def _short_lived_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis and PostgreSQL forget empty parents as soon as the test servers do."""
    monkeypatch.setattr(redis_requests, "EMPTY_MS", 1000)
    monkeypatch.setattr(postgres, "EXPIRE", PostgresRequest("expire", ("1000",)))


@pytest.fixture
def two_sessions(distlock_settings: Settings) -> Settings:
    """Beside "default" an alias "other" with the same tree: as a client in another process."""
    default = distlock_settings.DISTLOCK["default"]
    distlock_settings.DISTLOCK = {"default": default, "other": default}
    return distlock_settings


@pytest.fixture
def tree(two_sessions: Settings) -> Iterator[Tree]:
    """The test's namespace; at the end of the test there may be no lock node in it."""
    default = two_sessions.DISTLOCK["default"]
    with tree_at(default["HOSTS"], default["NAMESPACE"]) as tree:
        yield tree
        assert_clean(tree)


def assert_clean(tree: Tree) -> None:
    """To be called before the sessions end, which removes whatever a lock has left behind."""
    eventually(lambda: not tree.lock_nodes(), PATIENCE, "a tree without lock nodes")


@pytest.fixture
def make_owner() -> Iterator[MakeOwner]:
    """Returns a new owner each time."""
    with ExitStack() as owners:
        yield lambda: owners.enter_context(Owner())


@pytest.fixture
def holder(tree: Tree, make_owner: MakeOwner) -> Iterator[Owner]:
    """Somebody who holds "key" over the session "other", until the end or until told otherwise."""
    lock, holder = zk_lock("key", using="other"), make_owner()
    assert holder.now(lock.acquire)
    tree.await_line("key", 1)
    yield holder
    if holder.now(lambda: lock.held):
        holder.now(lock.release)


@pytest.fixture
def broken_link(two_sessions: Settings, tree: Tree, zookeeper: ZooKeeper) -> Iterator[TcpProxy]:
    """The link of the alias "default", whole at first; "other" is connected directly."""
    port = zookeeper.servers[0].port
    with TcpProxy("127.0.0.1", port) as proxy:
        other = two_sessions.DISTLOCK["other"]
        hosts = other["HOSTS"].replace(f"127.0.0.1:{port}", proxy.address)
        default = {**other, "HOSTS": hosts, "CONNECT_TIMEOUT": 1}
        two_sessions.DISTLOCK = {"default": default, "other": other}
        yield proxy
        proxy.pass_through()
        assert_clean(tree)
        close_sessions()


@pytest.fixture
def patient_link(broken_link: TcpProxy, two_sessions: Settings) -> TcpProxy:
    """The same for callers who bear to be without a connection for as long as a test takes."""
    default = {**two_sessions.DISTLOCK["default"], "CONNECT_TIMEOUT": PATIENCE}
    two_sessions.DISTLOCK = {**two_sessions.DISTLOCK, "default": default}
    return broken_link


@pytest.fixture
def slow_link(patient: None, patient_link: TcpProxy) -> TcpProxy:  # noqa: ARG001
    """The same, so slow that a task awaits each answer, and in a session that outlives that."""
    await_connection()
    patient_link.delay(0.02)
    return patient_link


@pytest.fixture
def own_zookeeper(two_sessions: Settings) -> Iterator[ZooKeeper]:
    """A server that a test may stop, for both aliases."""
    with ZooKeeper() as zookeeper:
        # Long enough to outlive a restart on a busy machine, lease and all.
        options = {**two_sessions.DISTLOCK["default"], "SESSION_TIMEOUT": 15}
        options["HOSTS"] = zookeeper.hosts
        two_sessions.DISTLOCK = {"default": options, "other": options}
        yield zookeeper
        close_sessions()


@pytest.fixture
def set_options(two_sessions: Settings) -> SetOptions:
    """Changes options of the alias "default", or of the one that is named."""

    def change(using: str = "default", **options: Any) -> None:
        aliases = two_sessions.DISTLOCK
        two_sessions.DISTLOCK = {**aliases, using: {**aliases[using], **options}}

    return change


@pytest.fixture
def losses() -> Iterator[list[Loss]]:
    """What `lock_lost` has told, when and on which thread."""
    told: list[Loss] = []

    def receive(**facts: Any) -> None:
        told.append(loss_of(facts))

    lock_lost.connect(receive)
    yield told
    lock_lost.disconnect(receive)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the requests that this process sends, without kazoo's pings."""
    return record_requests(monkeypatch, Client, RedisClient, PostgresClient)


@pytest.fixture
def patient(two_sessions: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy machine holds up is not taken for a server that is away, nor for a lost lock."""
    monkeypatch.setattr(patience, "ANSWER_SECONDS", PATIENCE)
    aliases = two_sessions.DISTLOCK
    long = {"SESSION_TIMEOUT": 20, "CONNECT_TIMEOUT": PATIENCE}
    two_sessions.DISTLOCK = {using: {**options, **long} for using, options in aliases.items()}


@pytest.fixture
def permits(tree: Tree) -> Iterator[Permits]:
    """The semaphore "key"; at the end of the test it may have no nodes.

    Its parents are no containers, so that the server does not remove them in the middle.
    """
    permits = Permits(tree)
    tree.client.ensure_path(permits.path)
    tree.client.ensure_path(permits.queue)
    yield permits
    permits.await_(0, 0)


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What signals have said of leases: (which, facts)."""
    heard: list[tuple[str, dict[str, Any]]] = []
    signals: dict[str, Signal] = {
        "acquired": lock_acquired,
        "released": lock_released,
        "lost": lock_lost,
        "contended": lock_contended,
    }

    def receiver(name: str) -> Any:
        def hear(**facts: Any) -> None:
            assert facts.pop("sender") is PersistentLease
            del facts["signal"]
            heard.append((name, facts))

        return hear

    receivers = {name: receiver(name) for name in signals}
    for name, signal in signals.items():
        signal.connect(receivers[name])
    yield heard
    for name, signal in signals.items():
        signal.disconnect(receivers[name])


@pytest.fixture
def busy(tree: Tree, make_owner: MakeOwner) -> Iterator[None]:
    """Somebody holds "b" over the session "other"."""
    holder, lock = make_owner(), zk_lock("b", using="other")
    assert holder.now(lock.acquire)
    tree.await_line("b", 1)
    yield
    holder.now(lock.release)


@pytest.fixture
def no_server_time() -> None:
    """Nothing is known of the server's time."""
    server_time._clocks.clear()


@pytest.fixture
def own_timer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Timers of the test's own, which end with it; that of the process lives as long as that."""
    others, end = timers(), cast("Any", sys.exit)
    monkeypatch.setattr(timer, "_timer", None)
    yield
    with monkeypatch.context() as patch:
        patch.setattr(threading, "excepthook", threading.__excepthook__)  # takes sys.exit for usual
        for thread in timers() - others:
            thread.orders.put((0.0, 0, end))
            thread.join(PATIENCE)
    assert timers() <= others


def timers() -> set[timer._Timer]:
    """The threads of timers."""
    return {thread for thread in threading.enumerate() if isinstance(thread, timer._Timer)}
