"""What ZooKeeper really does, where a promise or a warning of ours rests on it.

`README.md` beside this file lists these premises, and those that tests elsewhere watch.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Connect, Create
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, raw_client

#: `ZooKeeperServer.superSecret`, the same in all releases.
SUPER_SECRET = 0xB3415C00


def password_of(session_id: int) -> bytes:
    """Return what `ZooKeeperServer.generatePasswd` gives: the bytes of a `java.util.Random`."""
    state = ((session_id ^ SUPER_SECRET) ^ 0x5DEECE66D) & (1 << 48) - 1
    words = []
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        words.append(state >> 16 & 0xFFFFFFFF)
    return struct.pack("<4I", *words)


def test_who_knows_the_id_of_a_session_can_end_it(real_zookeeper: ZooKeeper) -> None:
    path = f"/premise-{uuid4()}"
    private = [make_digest_acl("holder", "secret", all=True)]
    with raw_client(real_zookeeper.hosts) as holder:
        holder.add_auth("digest", "holder:secret")
        holder.create(path, ephemeral=True, acl=private)
        session_id, password = holder.client_id
        assert password == password_of(session_id)
        stranger = KazooClient(
            real_zookeeper.hosts, client_id=(session_id, password_of(session_id))
        )
        stranger.start()
        stranger.stop()
        with raw_client(real_zookeeper.hosts) as looker:
            eventually(lambda: looker.exists(path) is None)
        stranger.close()


def test_the_creates_of_one_transaction_share_its_id(real_zookeeper: ZooKeeper) -> None:
    path = f"/premise-{uuid4()}"
    with raw_client(real_zookeeper.hosts) as client:
        client.create(path)
        many = client.transaction()
        for _ in range(3):
            many.create(f"{path}/lock-", sequence=True)
        made = many.commit()
        assert len({client.get(one)[1].czxid for one in made}) == 1
        assert [int(one[-10:]) for one in made] == [0, 1, 2]


def test_a_list_behind_a_create_has_every_node_before_it(zookeeper_ensemble: ZooKeeper) -> None:
    """Each client has a server of its own: what it lists is what a follower has applied."""
    path = f"/premise-{uuid4()}"
    clients = [KazooClient(server.address) for server in zookeeper_ensemble.servers]
    for client in clients:
        client.start()
    try:
        clients[0].create(path)
        for client in clients:
            client.sync(path)
        sent = []
        for _ in range(100):
            for client in clients:
                created = client.create_async(f"{path}/lock-", sequence=True)
                sent.append((created, client.get_children_async(path)))
        for created, listed in sent:
            own = int(created.get(timeout=20)[-10:])
            numbers = {int(name[-10:]) for name in listed.get(timeout=20)}
            assert numbers >= set(range(own + 1))
    finally:
        for client in clients:
            client.stop()
            client.close()


@pytest.mark.parametrize("other", [0, 1])
def test_a_request_that_arrives_after_the_next_connection_is_never_carried_out(
    zookeeper_ensemble: ZooKeeper, other: int
) -> None:
    """On the server of the connection before, and on another one."""
    servers = zookeeper_ensemble.followers()
    path = f"/premise-{uuid4()}"
    with socket.create_connection(("127.0.0.1", servers[0].port), 10) as lost:
        _send(lost, Connect(0, 0, 20_000, 0, bytes(16), False).serialize())
        connected, _ = Connect.deserialize(lost.recv(4096), 4)
        session = connected.session_id, connected.passwd
        next_one = KazooClient(servers[other].address, client_id=session)
        next_one.start()
        try:
            assert next_one.client_id == session
            next_one.sync("/")
            with suppress(ConnectionError):  # the server may have closed it
                create = Create(path, b"", OPEN_ACL_UNSAFE, 1)
                _send(lost, struct.pack(">ii", 1, create.type) + create.serialize())
                assert lost.recv(4096) == b""
            next_one.sync("/")
            assert next_one.exists(path) is None
        finally:
            next_one.stop()
            next_one.close()


def _send(one: socket.socket, message: bytes) -> None:
    one.sendall(struct.pack(">i", len(message)) + message)
