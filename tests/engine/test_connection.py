"""The connection thread outlives every answer and every error; the session goes on (kazoo 254)."""

from __future__ import annotations

import errno
import logging
import random
import struct
from functools import partial
from typing import TYPE_CHECKING

import pytest

from distlock import LockBusy, LockUnavailable, zk_lock
from distlock.engine.reply import ignore
from distlock.engine.zookeeper.connection import Connection
from distlock.engine.zookeeper.handler import Handler
from distlock.session.registry import close_sessions, session_for
from tests.kit.engines import first_then_deep
from tests.kit.frames import FrameProxy, frame
from tests.kit.helpers import eventually
from tests.kit.tools import expire, inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django import Settings

    from distlock_chaos.server import ZooKeeper

    Alter = Callable[[bytes], bytes | None]

HEADER = struct.Struct("!iqi")
LENGTH = struct.Struct("!i")


@pytest.fixture
def altered(distlock_settings: Settings, zookeeper: ZooKeeper) -> Iterator[FrameProxy]:
    """The link to the server."""
    with FrameProxy(zookeeper.servers[0].port) as proxy:
        options = {**distlock_settings.DISTLOCK["default"], "HOSTS": proxy.address}
        distlock_settings.DISTLOCK = {"default": {**options, "CONNECT_TIMEOUT": 1, "TIMEOUT": 1}}
        yield proxy
        proxy.pass_through()
        close_sessions()


def with_header(*, xid: int | None = None, ahead: int = 0, err: int = 0) -> Alter:
    """Return an alteration of the header.

    :param xid: the number of the request that is answered
    :param ahead: by how much that number is too great
    :param err: the error, 0 for that of the server
    """

    def alter(content: bytes) -> bytes:
        given, zxid, error = HEADER.unpack_from(content)
        number = given + ahead if xid is None else xid
        return frame(HEADER.pack(number, zxid, err or error) + content[HEADER.size :])

    return alter


def instead(sent: bytes | None) -> Alter:
    """Return an alteration that sends this in place of a frame."""
    return lambda _: sent


HEADERS: dict[str, Alter] = {
    "the number of another request": with_header(ahead=100),
    "the number of the next request": with_header(ahead=1),
    "the number of an authentication": with_header(xid=-4),
    "an authentication that failed": with_header(xid=-4, err=-115),
    "the number of an event": with_header(xid=-1),
    "an unknown number": with_header(xid=-77),
}
FRAMES: dict[str, Alter] = {
    "twice": lambda content: frame(content) * 2,
    "no content": lambda content: frame(content[: HEADER.size]),
    "half a header": lambda content: frame(content[:7]),
    "nothing": instead(frame(b"")),
    "a part of a frame, then silence": lambda content: LENGTH.pack(len(content) + 99_999) + content,
    "the end": instead(None),
    "a huge length": lambda content: LENGTH.pack(2**31 - 1) + content,
    "a negative length": lambda content: LENGTH.pack(-5) + content,
    "the least length": lambda content: LENGTH.pack(-(2**31)) + content,
    "text": instead(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
}
ALTERATIONS = HEADERS | FRAMES


def try_to_lock(key: str) -> None:
    """Acquire and release, whatever the server makes of it.

    One altered byte in the name of the own node is a waiter ahead: then the lock is busy.
    """
    try:
        with zk_lock(key, timeout=0.5):
            pass
    except (LockBusy, LockUnavailable):
        pass


def assert_healthy(key: str = "key") -> None:
    """Check that the lock can be taken: the thread lives, and nothing was left in line."""

    def locked() -> bool:
        try:
            with zk_lock(key, timeout=1):
                return True
        except LockUnavailable:
            return False

    assert eventually(locked, 15)


@pytest.mark.parametrize("name", ALTERATIONS)
def test_the_session_outlives_an_answer_that_is_wrong(altered: FrameProxy, name: str) -> None:
    assert_healthy()
    session, session_id = session_for(), session_for().id
    altered.alter = ALTERATIONS[name]
    for _ in range(2):
        try_to_lock("key")
    assert not session.over
    altered.pass_through()
    assert_healthy()
    assert session_for() is session
    assert session.id == session_id


def test_an_unknown_error_is_that_of_one_request(altered: FrameProxy) -> None:
    assert_healthy()
    connections = altered.accepted
    altered.alter = with_header(err=-7777)
    with pytest.raises(LockUnavailable, match="APIError"), zk_lock("refused"):
        pass
    altered.pass_through()
    assert_healthy()
    assert altered.accepted == connections


@pytest.mark.parametrize("name", FRAMES)
def test_a_first_answer_that_is_wrong_is_not_the_last(altered: FrameProxy, name: str) -> None:
    altered.greet = ALTERATIONS[name]
    try_to_lock("key")
    session = session_for()
    assert not session.over
    altered.pass_through()
    assert_healthy()
    assert session_for() is session


@pytest.mark.parametrize("seed", first_then_deep(range(4)))
def test_no_garbage_ends_the_connection_thread(altered: FrameProxy, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - not for secrets

    def garble(content: bytes) -> bytes | None:
        kind = chance.random()
        if kind < 0.4:
            return frame(content)
        if kind < 0.5:
            return chance.randbytes(chance.randrange(1, 60))
        if kind < 0.75:
            return chance.choice(list(ALTERATIONS.values()))(content)
        changed = bytearray(content)
        for _ in range(chance.randrange(1, 5)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return frame(bytes(changed))

    assert_healthy()
    session = session_for()
    altered.alter = garble
    for number in range(4):
        try_to_lock(f"key-{number}")
    assert not session.over
    altered.pass_through()
    assert_healthy()
    assert session_for() is session


def test_a_reply_to_a_request_of_the_connection_before_is_not_taken_for_another(
    altered: FrameProxy,
) -> None:
    """kazoo counts anew on each connection, so that the numbers of two would be the same."""
    seen: list[int] = []

    def note(content: bytes) -> bytes:
        seen.append(HEADER.unpack_from(content)[0])
        return frame(content)

    altered.alter = note
    assert_healthy()
    before = altered.accepted
    session_for()._client.drop()
    eventually(lambda: altered.accepted > before and session_for().connected)
    assert_healthy()
    numbers = [number for number in seen if number > 0]
    assert numbers == sorted(set(numbers))


def test_nothing_counts_that_comes_after_the_end_of_the_session(
    altered: FrameProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A server may answer what was sent just after the good-bye, too: the session has expired."""
    assert_healthy()
    assert not zk_lock("key").locked()  # the replies to all earlier requests have come
    one_more = with_header(ahead=1, err=-112)
    altered.alter = lambda content: frame(content) + (one_more(content) or b"")
    with caplog.at_level(logging.WARNING, "distlock"):
        assert session_for()._client.say_goodbye(10)
    assert not caplog.messages
    assert altered.accepted == 1


def grants(seconds: float) -> Alter:
    """Return an alteration of the session timeout that the server grants."""

    def alter(content: bytes) -> bytes:
        return frame(content[:4] + struct.pack("!i", int(seconds * 1000)) + content[8:])

    return alter


def test_a_session_keeps_the_least_timeout_that_was_granted_to_it(
    altered: FrameProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The next leader counts with its first one (`DataTree.sessionsWithTimeouts`)."""

    def after_a_reconnection(granted: float) -> float:
        altered.greet = grants(granted)
        before = session.connection
        session._client.drop()
        eventually(lambda: session.connected and session.connection > before + 1)
        return session.timeout

    altered.greet = grants(6)
    assert_healthy()
    session = session_for()
    session_id = session.id
    assert after_a_reconnection(18) == 6
    assert "a session timeout of 18 s by now, and this session keeps the least" in caplog.text
    assert after_a_reconnection(5) == 5
    assert after_a_reconnection(18) == 5
    assert_healthy()
    assert session.deadline.remaining < 5
    assert session.id == session_id
    expire(session.conf.hosts, session)
    eventually(lambda: session.connected and session.id != session_id)
    assert session.timeout == 18


class Unforeseen(BaseException):
    """An error that no code of ours, or kazoo's, knows."""


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, RecursionError, Unforeseen])
@pytest.mark.parametrize("where", ["_receive", "_send_queued", "_ping"])
def test_an_unknown_error_is_logged_once_and_leads_to_a_reconnection(
    where: str,
    error: type[BaseException],
    altered: FrameProxy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert_healthy()
    session, session_id, before = session_for(), session_for().id, altered.accepted

    def fail(*_: object) -> None:
        raise error("nobody has foreseen this")

    def met_three_times() -> bool:
        if where == "_send_queued":  # nothing is sent unasked
            session.soon(partial(session.read, "/", ignore))
        return altered.accepted > before + 2

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR, "distlock"):
        patched.setattr(Connection, where, fail)
        eventually(met_three_times)
    assert_healthy()
    assert session_for() is session
    assert session.id == session_id
    logged = [record for record in caplog.records if record.exc_info]
    assert [record.exc_info[0] for record in logged if record.exc_info] == [error]


@pytest.mark.usefixtures("altered")
def test_an_unknown_error_before_the_connection_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def fail(*_: object, **__: object) -> None:
        tries.append(1)
        raise UnicodeError("label too long")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR, "distlock"):
        patched.setattr(Handler, "create_connection", fail)
        session = session_for()
        eventually(lambda: len(tries) > 2)
    assert_healthy()
    assert session_for() is session
    assert len([record for record in caplog.records if record.exc_info]) == 1


@pytest.mark.usefixtures("altered")
def test_an_error_between_two_tries_ends_nothing(
    altered: FrameProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where libfaketime or seccomp bends the system call, and where memory is short."""
    assert_healthy()
    session, session_id = session_for(), session_for().id
    failed = []

    def fail(*_: object) -> None:
        failed.append(1)
        raise OSError(errno.EINVAL, "Invalid argument")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR, "distlock"):
        patched.setattr(inside(session)._stopped, "wait", fail)
        altered.alter = instead(None)
        session._client.drop()
        eventually(lambda: len(failed) > 2)
    altered.pass_through()
    assert_healthy()
    assert session_for() is session
    assert session.id == session_id
    assert len([record for record in caplog.records if record.exc_info]) == 1
