from __future__ import annotations

import gc
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually, raw_client
from tests.kit.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock_chaos.proxy import Direction
    from distlock_chaos.server import ZooKeeper

SILENCE = 0.15


class EchoServer:
    """Answers every chunk with itself, and remembers what it has received."""

    def __init__(self) -> None:
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    self.received += data
                    connection.sendall(data)
            except OSError:
                return  # Tests cut the connection.

    def close(self) -> None:
        if self._listener.fileno() == -1:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", echo.port) as proxy:
        yield proxy


@contextmanager
def connected(proxy: TcpProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as connection:
        yield connection


def says_nothing(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(20)
    return False


def test_it_passes_everything_on(proxy: TcpProxy) -> None:
    sent = bytes(range(256)) * 4096
    with connected(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=(sent,))
        sender.start()
        received = b""
        while len(received) < len(sent):
            received += connection.recv(65536)
        sender.join()
        assert received == sent
        assert proxy.connections == 1
    eventually(lambda: proxy.connections == 0)


def test_cut_closes_and_refuses_until_restored(proxy: TcpProxy) -> None:
    with connected(proxy) as connection:
        connection.sendall(b"a")
        assert connection.recv(1) == b"a"
        proxy.cut()
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            assert proxy.connections == 0
    with pytest.raises(ConnectionRefusedError), connected(proxy):
        pass
    proxy.cut()
    proxy.restore()
    with connected(proxy) as connection:
        connection.sendall(b"b")
        assert connection.recv(1) == b"b"


def test_who_comes_in_the_instant_of_a_cut_is_dropped(proxy: TcpProxy) -> None:
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", proxy.port)):  # the kernel accepts it
            proxy.cut()
        eventually(lambda: not proxy.connections)
        proxy.restore()
    gc.collect()  # and asyncio has closed all sockets, or else Python warns of them


def test_drop_closes_and_accepts_again(proxy: TcpProxy) -> None:
    with connected(proxy) as connection:
        connection.sendall(b"a")
        assert connection.recv(1) == b"a"
        proxy.drop()
        assert connection.recv(1) == b""
    with connected(proxy) as connection:
        connection.sendall(b"b")
        assert connection.recv(1) == b"b"


def test_new_connections_lead_elsewhere_and_the_present_ones_stay(
    proxy: TcpProxy, echo: EchoServer
) -> None:
    other = EchoServer()
    with connected(proxy) as first:
        first.sendall(b"1")
        assert first.recv(1) == b"1"
        proxy.lead_to(other.port)
        with connected(proxy) as second:
            for connection in (first, second):
                connection.sendall(b"2")
                assert connection.recv(1) == b"2"
    other.close()
    assert (echo.received, other.received) == (b"12", b"2")


@pytest.mark.parametrize(
    ("direction", "reaches_server"), [("both", False), ("to_server", False), ("to_client", True)]
)
def test_a_black_hole_is_silent_and_delivers_when_it_heals(
    proxy: TcpProxy, echo: EchoServer, direction: Direction, reaches_server: bool
) -> None:
    with connected(proxy) as old:
        old.sendall(b"1")
        assert old.recv(1) == b"1"
        proxy.black_hole(direction)
        old.sendall(b"2")
        if reaches_server:
            eventually(lambda: echo.received == b"12")
        assert says_nothing(old)
        assert (echo.received == b"12") is reaches_server

        with connected(proxy) as new:
            new.sendall(b"3")
            assert says_nothing(new)
            proxy.pass_through()
            assert old.recv(1) == b"2"
            assert new.recv(1) == b"3"


def test_a_black_hole_hides_that_the_other_side_has_gone(proxy: TcpProxy, echo: EchoServer) -> None:
    with connected(proxy) as connection:
        connection.sendall(b"1")
        assert connection.recv(1) == b"1"
        proxy.black_hole("to_client")
        connection.shutdown(socket.SHUT_WR)
        assert says_nothing(connection)
        proxy.restore()
        assert connection.recv(1) == b""
    assert echo.received == b"1"


def test_a_delay_is_added_once_however_many_chunks(proxy: TcpProxy) -> None:
    with connected(proxy) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        proxy.delay(0.1)
        with Stopwatch() as watch:
            for _ in range(10):
                connection.sendall(b"x")
                time.sleep(0.005)  # One chunk each: this is the traffic under test, not a wait.
            received = 0
            while received < 10:
                received += len(connection.recv(10))
        assert watch.elapsed >= 0.2
        assert watch.taken < 0.8


def test_the_server_may_be_down(echo: EchoServer) -> None:
    echo.close()
    with TcpProxy("127.0.0.1", echo.port) as proxy, connected(proxy) as connection:
        assert connection.recv(1) == b""


def test_a_zookeeper_session_survives_a_short_cut(zookeeper: ZooKeeper) -> None:
    port = zookeeper.servers[0].port
    with TcpProxy("127.0.0.1", port) as proxy, raw_client(proxy.address, timeout=15) as client:
        session, _ = client.client_id
        proxy.cut()
        eventually(lambda: not client.connected)
        proxy.restore()
        eventually(lambda: client.connected)
        assert client.exists("/zookeeper")
        assert client.client_id[0] == session


def test_what_is_held_back_arrives_later_and_new_connections_pass(
    echo: EchoServer, proxy: TcpProxy
) -> None:
    with connected(proxy) as first:
        first.sendall(b"before ")
        eventually(lambda: echo.received == b"before ")
        proxy.hold_back()
        first.sendall(b"late")
    with connected(proxy) as second:
        second.sendall(b"new ")
        eventually(lambda: echo.received == b"before new ")
        proxy.pass_through()
        eventually(lambda: echo.received == b"before new late")
