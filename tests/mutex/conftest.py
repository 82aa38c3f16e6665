"""Fixtures of the mutex tests: two sessions, owners, a link that breaks, the tree from outside."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from distlock import zk_lock
from distlock.session.registry import close_sessions
from distlock.testing.proxy import TcpProxy
from distlock.testing.server import ZooKeeper
from tests.kit.helpers import eventually, raw_client
from tests.mutex.tools import PATIENCE, MakeOwner, Owner, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings


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
    with raw_client(default["HOSTS"]) as client:
        tree = Tree(client, default["NAMESPACE"])
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
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        other = two_sessions.DISTLOCK["other"]
        default = {**other, "HOSTS": proxy.address, "CONNECT_TIMEOUT": 1}
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
def own_zookeeper(two_sessions: Settings) -> Iterator[ZooKeeper]:
    """A server that a test may stop, for both aliases."""
    with ZooKeeper() as zookeeper:
        # Long enough to outlive a restart on a busy machine, lease and all.
        options = {**two_sessions.DISTLOCK["default"], "SESSION_TIMEOUT": 15}
        options["HOSTS"] = zookeeper.hosts
        two_sessions.DISTLOCK = {"default": options, "other": options}
        yield zookeeper
        close_sessions()
