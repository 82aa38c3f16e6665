"""The clean-up of idle parents removes the containers that it has made, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from pytest_django import Settings

from distlock import zk_lock
from distlock.session import guaranteed_delete
from distlock.session.registry import close_sessions, session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually, raw_client

SECONDS = 0.3


@pytest.fixture
def slow_reaper(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[KazooClient]:
    """A look at the tree of a server that itself removes no container while the test runs."""
    monkeypatch.setattr(guaranteed_delete, "IDLE_PARENT_SECONDS", SECONDS)
    with ZooKeeper(jvm=["-Dznode.container.checkIntervalMs=600000"]) as zookeeper:
        settings.DISTLOCK = {"default": {"HOSTS": zookeeper.hosts, "NAMESPACE": "/shop"}}
        with raw_client(zookeeper.hosts) as client:
            yield client
        close_sessions()


def use(key: str) -> None:
    with zk_lock(key):
        pass


def let_idle(client: KazooClient) -> None:
    """Wait until what idles would have been removed, and with it a container of ours."""
    use("ours")

    def removed() -> bool:
        use("busy")
        return not client.exists("/shop/ours")

    eventually(removed)
    # Each answer comes after those to all requests before it.
    session_for().call(session_for().read, "/", timeout=20, key="")


def test_an_idle_container_is_removed(slow_reaper: KazooClient) -> None:
    let_idle(slow_reaper)
    assert slow_reaper.exists("/shop/busy")


@pytest.mark.parametrize("kind", first_then_deep(["neither", "data", "ACL"]))
def test_a_node_of_somebody_else_stays(slow_reaper: KazooClient, kind: str) -> None:
    slow_reaper.ensure_path("/shop")
    acl = [*OPEN_ACL_UNSAFE, make_digest_acl("them", "secret", all=True)]
    data = b"stock: 42" if kind == "data" else b""
    slow_reaper.create("/shop/theirs", data, acl if kind == "ACL" else None)
    use("theirs")
    let_idle(slow_reaper)
    assert slow_reaper.exists("/shop/theirs")


def test_a_node_that_took_the_place_of_a_container_stays(slow_reaper: KazooClient) -> None:
    use("theirs")
    eventually(lambda: not slow_reaper.get_children("/shop/theirs"))
    slow_reaper.delete("/shop/theirs")
    slow_reaper.create("/shop/theirs", b"stock: 42")
    let_idle(slow_reaper)
    assert slow_reaper.exists("/shop/theirs")
