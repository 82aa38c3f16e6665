"""kazoo's own Lock on the same path is refused (promise 10).

Its nodes are ordered by other rules than Curator's, so both would hold.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from pytest_django import Settings

from distlock import IncompatiblePeer, zk_lock
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, raw_client

pytestmark = pytest.mark.usefixtures("distlock_settings")


@pytest.fixture
def peer(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    with raw_client(zookeeper.hosts) as client:
        yield client


@pytest.mark.parametrize("recipe", ["Lock", "ReadLock", "WriteLock"])
def test_a_kazoo_lock_on_the_path_is_refused_and_no_node_of_ours_stays(
    peer: KazooClient, namespace: str, recipe: str
) -> None:
    path = f"{namespace}/key"
    with getattr(peer, recipe)(path, "a kazoo client"):
        (theirs,) = peer.get_children(path)
        with pytest.raises(IncompatiblePeer, match="kazoo") as raised:
            zk_lock("key").acquire(timeout=2)
        assert theirs in str(raised.value)
        assert not zk_lock("key").held
        eventually(lambda: peer.get_children(path) == [theirs])


def test_the_lock_works_again_when_the_kazoo_lock_has_gone(
    peer: KazooClient, namespace: str
) -> None:
    theirs = peer.Lock(f"{namespace}/key", "a kazoo client")
    with theirs, pytest.raises(IncompatiblePeer):
        zk_lock("key").acquire()
    with zk_lock("key", timeout=2) as hold:
        hold.verify()


def test_a_kazoo_lock_that_comes_while_we_wait_is_noticed_at_the_next_look(
    peer: KazooClient, namespace: str, settings: Settings
) -> None:
    settings.DISTLOCK = {**settings.DISTLOCK, "other": settings.DISTLOCK["default"]}
    path = f"{namespace}/key"
    with zk_lock("key", using="other"):
        theirs = peer.create(f"{path}/{'0' * 32}__lock__", b"", ephemeral=True, sequence=True)
        with pytest.raises(IncompatiblePeer):
            zk_lock("key").acquire(timeout=0)
        peer.delete(theirs)
        assert not zk_lock("key").acquire(timeout=0)
