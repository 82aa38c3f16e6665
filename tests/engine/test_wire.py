"""Requests of one thread reach the server in the order of its calls, whatever others do meanwhile.

The locks rely on it: the list of a line comes after the create of the own node, a read after the
``sync`` before it, and the removal of a watch after its read. Here the other actors act before each
line that a sender runs, one line a time: the connection thread, a sender that is in the middle of
a send, and a server that does not read.
"""

from __future__ import annotations

import itertools
import socket
import struct
import sys
import threading
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.protocol.connection import ConnectionDropped

from distlock.conf import configuration
from distlock.engine import serving as serving_module
from distlock.engine import wire as wire_module
from distlock.engine.reply import Reply
from distlock.engine.serving import _SEND_SECONDS
from distlock.engine.wire import Wire
from distlock.engine.zookeeper import client as client_module
from distlock.engine.zookeeper.client import Client
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

SOURCES = {module.__file__ for module in (client_module, serving_module, wire_module)}
REQUESTS = 3
#: How many lines are between two acts of others.
DISTANCES = (1, 3, 8, 21)


class Rig:
    """A client on one end of a pair of sockets, without its connection thread.

    :param at_once: how many bytes the kernel takes at once
    """

    def __init__(self, at_once: int) -> None:
        mine, self._server = socket.socketpair()
        self.client = Client(configuration(), lambda *_: None)
        self.connection = connection = self.client._connection
        connection._read_sock, connection._write_sock = connection.handler.create_socket_pair()
        self.wire = connection._socket = connection.wire = Wire(mine)
        self.client._pending = self.wire.unanswered
        self._another_sends = False
        send = self.wire.send

        def send_some(data: Any, flags: int = 0) -> int:
            return send(data[:at_once], flags)

        self.wire.send = send_some  # type: ignore[method-assign]

    def close(self) -> None:
        for one in (
            self.wire,
            self._server,
            self.connection._read_sock,
            self.connection._write_sock,
        ):
            one.close()

    def submit(self, number: int) -> None:
        reply = Reply(lambda *_: None, None, lambda _: None, 0)
        self.client.submit((self.client.deletion(f"/{number}"), reply))

    def submit_all(self) -> None:
        for number in range(REQUESTS):
            self.submit(number)

    def send_queued(self) -> None:
        """Do what the connection thread does once it is awake."""
        self.connection._busy_since = None  # a trace takes its time
        self.look()

    def look(self) -> None:
        """Do the same once more, after the wire was found busy."""
        self.connection._send_queued(1)

    def begin_another_send(self) -> None:
        """Take the wire, as a thread does that sends."""
        self._another_sends = self.wire.lock.acquire(blocking=False)

    def end_another_send(self) -> None:
        if self._another_sends:
            self._another_sends = False
            self.wire.lock.release()

    def finish(self) -> None:
        self.end_another_send()
        while self.client._queue or self.wire.rest:
            self.send_queued()

    def sent(self) -> list[tuple[str, int]]:
        """The paths of the requests that the server has received, and their numbers."""
        found, data = [], self._server.recv(1 << 16)
        while data:
            length, xid, _, size = struct.unpack_from("!iiii", data)
            found.append((data[16 : 16 + size].decode(), xid))
            data = data[4 + length :]
        return found


def with_others(call: Callable[[], None], acts: Mapping[int, Callable[[], None]]) -> int:
    """Run a call, let another thread act before the lines of these numbers; return how many ran."""
    line = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal line
        if frame.f_code.co_filename not in SOURCES:
            return None
        if event == "line":
            line += 1
            if line in acts:
                thread = threading.Thread(target=acts[line])
                thread.start()
                thread.join()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return line


def assert_in_order(rig: Rig) -> None:
    rig.finish()
    sent = rig.sent()
    assert [path for path, _ in sent] == [f"/{number}" for number in range(REQUESTS)]
    assert [xid for _, xid in sent] == [xid for *_, xid in rig.wire.unanswered]
    rig.close()


@pytest.mark.parametrize("at_once", [1 << 16, 9])
@pytest.mark.parametrize(
    "others",
    [
        (Rig.send_queued, Rig.send_queued),
        (Rig.begin_another_send, Rig.end_another_send),
        (Rig.begin_another_send, Rig.end_another_send, Rig.send_queued),
    ],
    ids=["the connection thread", "another sender", "both"],
)
def test_requests_of_one_thread_keep_their_order_whatever_others_do(
    others: tuple[Callable[[Rig], None], ...], at_once: int
) -> None:
    for distance in DISTANCES:
        for step in itertools.count(1):
            rig = Rig(at_once)
            acts = {step + n * distance: partial(act, rig) for n, act in enumerate(others)}
            lines = with_others(rig.submit_all, acts)
            assert_in_order(rig)
            if step > lines:
                assert lines > 40
                break


@pytest.mark.parametrize("at_once", [1 << 16, 9])
def test_requests_keep_their_order_while_the_connection_thread_sends_the_first(
    at_once: int,
) -> None:
    for distance in DISTANCES:
        for step in itertools.count(1):
            rig = Rig(at_once)
            rig.begin_another_send()
            rig.submit(0)
            rig.end_another_send()
            acts = {step: partial(rig.submit, 1), step + distance: partial(rig.submit, 2)}
            lines = with_others(rig.send_queued, acts)
            for number in (1, 2):
                if step + (number - 1) * distance > lines:
                    rig.submit(number)
            assert_in_order(rig)
            if step > lines:
                assert lines > 20
                break


@pytest.fixture
def busy_rig() -> Iterator[Rig]:
    """A request is queued, for another thread is in the middle of a send."""
    rig = Rig(1 << 16)
    rig.begin_another_send()
    rig.submit(0)
    yield rig
    rig.end_another_send()
    rig.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the connection, which passes as the test says."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(serving_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_burst_of_looks_does_not_interrupt_the_send_of_another_thread(
    busy_rig: Rig, clock: SimpleNamespace
) -> None:
    for _ in range(100):
        clock.now += _SEND_SECONDS / 200
        busy_rig.look()
    busy_rig.finish()
    assert len(busy_rig.sent()) == 1


def test_a_send_that_does_not_end_was_interrupted(busy_rig: Rig, clock: SimpleNamespace) -> None:
    busy_rig.look()
    clock.now = 0.9 * _SEND_SECONDS
    busy_rig.look()
    clock.now = _SEND_SECONDS
    with pytest.raises(ConnectionDropped, match="interrupted"):
        busy_rig.look()


def test_the_sends_of_several_threads_are_told_apart(busy_rig: Rig, clock: SimpleNamespace) -> None:
    for _ in range(10):
        clock.now += 0.9 * _SEND_SECONDS
        busy_rig.look()
        busy_rig.wire.sent_at = clock.now  # another one has ended, and one has begun
    busy_rig.finish()
    assert len(busy_rig.sent()) == 1


@pytest.mark.parametrize("during_a_send", [False, True])
def test_a_closed_wire_gives_its_descriptor_back_when_nobody_sends(
    during_a_send: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a finaliser, in which Python would swallow the exception of a signal handler."""
    mine, server = socket.socketpair()
    wire = Wire(mine, lambda request: (1, request))
    closing = threading.Thread(target=wire.close)
    open_in_the_send: list[bool] = []

    def send(_: Wire, data: bytes) -> int:
        closing.start()  # the connection thread
        eventually(lambda: wire.over)
        open_in_the_send.append(wire.fileno() >= 0)
        return len(data)

    outcomes: list[object] = []
    reply = Reply(lambda *outcome: outcomes.append(outcome), None, lambda _: None, 0)
    with server:
        if during_a_send:
            monkeypatch.setattr(Wire, "send", send)
            monkeypatch.setattr(wire_module, "_END_SECONDS", PATIENCE)
            assert wire.transmit((b"request", reply))
            closing.join()
            assert open_in_the_send == [True]
            assert len(outcomes) == 1
        else:
            wire.close()
        assert wire.fileno() == -1
        assert not wire.transmit((b"request", reply))
    assert "__del__" not in vars(Wire)
