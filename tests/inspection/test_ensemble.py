"""What the servers of an ensemble say of themselves, one by one."""

from __future__ import annotations

import socket
import threading

import pytest

from distlock.conf import Configuration
from distlock.engine.protocol import Finding
from distlock.engine.zookeeper.ensemble import host_and_port, members
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE


def asked(hosts: str, timeout: float = PATIENCE) -> list[Finding]:
    return members(Configuration(hosts=hosts), timeout)


def test_a_server_that_is_down_and_one_without_a_majority() -> None:
    with ZooKeeper(nodes=3) as zookeeper:
        for server in zookeeper.servers[1:]:
            server.kill()
        (lonely,) = eventually(
            lambda: [one for one in asked(zookeeper.hosts) if "serves nobody" in one.message],
            2 * PATIENCE,
        )
        assert lonely.subject == f"server {zookeeper.servers[0].address}"
        assert lonely.level == "warning"
        down = asked(zookeeper.hosts)[1]
        assert down.level == "error"
        assert "refused" in down.message


def test_a_server_that_forbids_the_word_is_reachable() -> None:
    with ZooKeeper(config={"4lw.commands.whitelist": "srvr"}) as zookeeper:
        assert asked(zookeeper.hosts)[0].message.startswith("standalone")
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)) as server:
        said = b"srvr is not executed because it is not in the whitelist.\n"

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(4)
                client.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        (one,) = asked(f"127.0.0.1:{port}")
        thread.join(PATIENCE)
        assert (one.level, "does not tell its role" in one.message) == ("ok", True)


def test_a_server_that_says_nothing_is_given_up(zookeeper: ZooKeeper) -> None:
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        proxy.black_hole()
        (one,) = asked(proxy.address, 0.3)
        assert one.level == "warning"
        assert one.message.startswith("accepts connections and says nothing: timed out")


def test_a_name_that_is_none_is_an_error() -> None:
    (one,) = asked("no..host:2181")
    assert one.level == "error"
    assert one.message.startswith("cannot be reached: ")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("zk1", ("zk1", 2181)),
        ("zk1:2182", ("zk1", 2182)),
        ("[::1]", ("::1", 2181)),
        ("[::1]:2182", ("::1", 2182)),
    ],
    ids=["name", "name and port", "v6", "v6 and port"],
)
def test_addresses_are_split(address: str, expected: tuple[str, int]) -> None:
    assert host_and_port(address) == expected
