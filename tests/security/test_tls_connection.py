"""Two things that go wrong with TLS on the connection thread, without a server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from distlock.conf import Configuration
from distlock.engine.zookeeper.client import Client
from distlock.engine.zookeeper.ensemble import tls_context
from distlock.engine.zookeeper.handler import Handler
from tests.security.certificates import Authority

Ends = tuple[ssl.SSLSocket, ssl.SSLSocket]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    """Our end of a connection, and the server's."""
    authority = Authority(tmp_path / "authority")
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(authority.issue("server", address="127.0.0.1"))
    ours = tls_context(Configuration(tls={"ca": str(authority.pem)}))
    assert ours is not None
    with ExitStack() as stack:
        here, there = map(stack.enter_context, socket.socketpair())
        made: list[ssl.SSLSocket] = []
        accepting = Thread(
            target=lambda: made.append(
                stack.enter_context(theirs.wrap_socket(there, server_side=True))
            )
        )
        accepting.start()
        client = stack.enter_context(ours.wrap_socket(here, server_hostname="127.0.0.1"))
        accepting.join()
        yield client, made[0]


def test_an_answer_that_came_with_the_one_before_it_does_not_wait(ends: Ends) -> None:
    """kazoo's loop asks the socket only, where what TLS has decrypted does not show."""
    client, server = ends
    server.sendall(b"two answers")  # one record
    assert client.recv(3) == b"two"
    handler = Handler("test", 1, None)
    assert handler.select([client], [], [], 0) == ([client], [], [])
    assert client.recv(100) == b" answers"
    assert handler.select([client], [], [], 0) == ([], [], [])


def test_a_dropped_connection_sends_nothing_in_the_clear(ends: Ends) -> None:
    """`SSLSocket.shutdown` would leave a plain socket to the connection thread."""
    client, _ = ends
    one = Client(Configuration(), lambda *_: None)
    one._connection._socket = client
    one.drop()
    assert client.version() is not None
    with pytest.raises(OSError, match=r".+"):
        client.sendall(b"secret")
