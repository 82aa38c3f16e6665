"""Ending a session with its id and password, by one who has not begun it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock.conf import Configuration
from distlock.takeover import _Takeover, end_session
from distlock.testing.server import ZooKeeper, free_ports
from tests.helpers import raw_client
from tests.mutex.tools import PATIENCE

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from distlock.testing.proxy import TcpProxy


@pytest.fixture
def conf(zookeeper: ZooKeeper) -> Configuration:
    return Configuration(hosts=zookeeper.hosts, session_timeout=15)


def credentials(client: KazooClient) -> tuple[int, bytes]:
    number, password = client.client_id
    return number, password


def test_a_session_ends_with_its_nodes(conf: Configuration, namespace: str) -> None:
    with raw_client(conf.hosts) as outside, raw_client(conf.hosts) as victim:
        victim.create(namespace, ephemeral=True)
        assert end_session(conf, *credentials(victim), PATIENCE) is True
        assert outside.exists(namespace) is None


def test_without_the_password_a_session_does_not_end(conf: Configuration, namespace: str) -> None:
    with raw_client(conf.hosts) as outside, raw_client(conf.hosts) as victim:
        victim.create(namespace, ephemeral=True)
        number, password = credentials(victim)
        assert end_session(conf, number, bytes(len(password)), PATIENCE) is False
        assert outside.exists(namespace).ephemeralOwner == number


def test_a_session_that_is_over_is_no_reason_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    say_goodbye = _Takeover.say_goodbye

    def say_it_late(client: _Takeover, seconds: float) -> None:
        client._connection._connection_routine.join(2)
        say_goodbye(client, seconds)

    monkeypatch.setattr(_Takeover, "say_goodbye", say_it_late)
    with ZooKeeper() as zookeeper:  # nobody else begins sessions there
        conf = Configuration(hosts=zookeeper.hosts, session_timeout=15)
        with raw_client(zookeeper.hosts) as client:
            over = credentials(client)
        assert end_session(conf, *over, PATIENCE) is False
        with raw_client(zookeeper.hosts) as client:
            assert credentials(client)[0] == over[0] + 1  # ids are given in turn


def test_it_gives_up_where_nobody_answers() -> None:
    (port,) = free_ports(1)
    conf = Configuration(hosts=f"127.0.0.1:{port}", session_timeout=15)
    assert end_session(conf, 1, b"p" * 16, 0.3) is False


def test_it_waits_for_a_link_that_is_down(
    broken_link: TcpProxy, zookeeper: ZooKeeper, namespace: str
) -> None:
    conf = Configuration(hosts=broken_link.address, session_timeout=15)
    with raw_client(zookeeper.hosts) as outside, raw_client(zookeeper.hosts) as victim:
        victim.create(namespace, ephemeral=True)
        broken_link.cut()
        assert end_session(conf, *credentials(victim), 0.3) is False
        assert outside.exists(namespace)
        broken_link.pass_through()
        assert end_session(conf, *credentials(victim), PATIENCE) is True
        assert outside.exists(namespace) is None
