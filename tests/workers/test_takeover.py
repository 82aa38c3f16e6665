"""Ending a session with its id and password, by one who has not begun it."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

from distlock.conf import Configuration
from distlock.engine.session_reaper import Refused
from distlock.engine.zookeeper.engine import report
from distlock.session.reaper import end_session
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import raw_client
from tests.kit.tools import PATIENCE, within
from tests.security.conftest import SASL_PASSWORD, SASL_USER, SecureServer, secure_server

__all__ = ["secure_server"]


@pytest.fixture
def conf(zookeeper: ZooKeeper) -> Configuration:
    return Configuration(hosts=zookeeper.hosts, session_timeout=15)


def credentials(client: KazooClient) -> tuple[int, bytes]:
    number, password = client.client_id
    return number, password


def test_without_the_password_a_session_does_not_end(conf: Configuration, namespace: str) -> None:
    with raw_client(conf.hosts) as outside, raw_client(conf.hosts) as victim:
        victim.create(namespace, ephemeral=True)
        number, password = credentials(victim)
        assert end_session(conf, number, bytes(len(password)), PATIENCE) is False
        assert outside.exists(namespace).ephemeralOwner == number


def test_a_server_that_does_not_know_the_session_is_not_believed_alone(
    zookeeper: ZooKeeper, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was deposed before the session began answers as a server of another site."""
    monkeypatch.setattr(random, "sample", lambda servers, _: servers)
    with ZooKeeper() as stranger, raw_client(zookeeper.hosts) as victim:
        conf = Configuration(hosts=f"{stranger.hosts},{zookeeper.hosts}", session_timeout=15)
        victim.create(namespace, ephemeral=True)
        session = credentials(victim)
        assert end_session(conf, *session, PATIENCE) is True
        assert end_session(conf, *session, PATIENCE) is False


def test_it_gives_up_where_nobody_answers() -> None:
    (port,) = free_ports(1)
    conf = Configuration(hosts=f"127.0.0.1:{port}", session_timeout=15)
    with within(5), pytest.raises(ConnectionRefusedError):
        end_session(conf, 1, b"p" * 16, 0.3)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 400 Bad Request", id="another protocol"),
        pytest.param(b"\0\0\0\1\0", id="too short"),
    ],
)
def test_it_gives_up_where_no_server_of_zookeepers_answers(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):  # the test has ended
                while True:
                    with listening.accept()[0] as accepted:
                        accepted.recv(100)
                        accepted.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        conf = Configuration(hosts=f"127.0.0.1:{listening.getsockname()[1]}")
        with within(10), pytest.raises(ConnectionError):
            end_session(conf, 1, b"p" * 16, 0.3)
        listening.shutdown(socket.SHUT_RDWR)


def test_it_asks_the_next_server_where_one_is_down(zookeeper: ZooKeeper, namespace: str) -> None:
    (port,) = free_ports(1)
    hosts = f"127.0.0.1:{port}, {zookeeper.hosts}/chroot"
    conf = Configuration(hosts=hosts.replace(" ", ""), session_timeout=15)
    with raw_client(zookeeper.hosts) as outside, raw_client(zookeeper.hosts) as victim:
        victim.create(namespace, ephemeral=True)
        assert end_session(conf, *credentials(victim), PATIENCE) is True
        assert outside.exists(namespace) is None


@pytest.mark.parametrize(
    ("hosts", "servers"),
    [
        ("zk1,zk2:2182/a/b", [("zk1", 2181), ("zk2", 2182)]),
        ("[::1]:2183,[::1]", [("::1", 2183), ("::1", 2181)]),
    ],
)
def test_the_servers_of_a_report(hosts: str, servers: list[tuple[str, int]]) -> None:
    assert report(Configuration(hosts=hosts), 1, b"")["servers"] == servers


# --- credentials ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["digest", "sasl", "tls"])
def test_a_session_is_ended_with_the_credentials_of_its_alias(
    way: str, secure_server: SecureServer, namespace: str
) -> None:
    secrets: dict[str, Any] = {
        "digest": {"auth": (("digest", "user:password"),)},
        "sasl": {"auth": (("sasl", f"{SASL_USER}:{SASL_PASSWORD}"),)},
        "tls": {"hosts": secure_server.tls, "tls": secure_server.tls_options()},
    }
    options = {"hosts": secure_server.plain, "session_timeout": 15, **secrets[way]}
    conf = Configuration(**options)
    plain = secure_server.plain
    with raw_client(plain) as outside, raw_client(plain) as victim:
        victim.create(namespace, ephemeral=True)
        assert end_session(conf, *credentials(victim), PATIENCE) is True
        assert outside.exists(namespace) is None


def test_wrong_credentials_are_shown_once(secure_server: SecureServer) -> None:
    conf = Configuration(hosts=secure_server.plain, auth=(("nonsense", "s3cr3t"),))
    with (
        raw_client(secure_server.plain) as victim,
        within(PATIENCE / 2),
        pytest.raises(Refused) as refused,
    ):
        end_session(conf, *credentials(victim), PATIENCE)
    assert "s3cr3t" not in str(refused.value)
