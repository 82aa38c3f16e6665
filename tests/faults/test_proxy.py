from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.stopwatch import Stopwatch

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


def test_who_comes_in_the_instant_of_a_cut_is_dropped(proxy: TcpProxy) -> None:
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", proxy.port)):  # the kernel accepts it
            proxy.cut()
        eventually(lambda: not proxy.connections)
        proxy.restore()
    gc.collect()  # and asyncio has closed all sockets, or else Python warns of them


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
