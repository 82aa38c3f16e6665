"""The connection thread outlives every error; the session goes on. See `tests.engine`, too."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from distlock.engine.redis.client import RedisClient
from distlock.engine.reply import ignore
from distlock.session.registry import close_sessions
from distlock.session.session import Session
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, await_connection


@pytest.fixture
def link(redis: Redis, use: Callable[..., None]) -> Iterator[TcpProxy]:
    """The way to the server."""
    with TcpProxy("127.0.0.1", redis.port) as link:
        use(f"redis://{link.address}/0", SESSION_TIMEOUT=PATIENCE)
        yield link
        close_sessions()


class Unforeseen(BaseException):
    """An error that no code of ours knows."""


def assert_goes_on(session: Session, session_id: int, caplog: pytest.LogCaptureFixture) -> None:
    assert await_connection() is session
    assert session.id == session_id
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_an_error_between_two_tries_ends_nothing(
    link: TcpProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where libfaketime or seccomp bends the system call, and where memory is short."""
    session = await_connection()
    before, failed = session.id, []

    def fail(*_: object) -> None:
        failed.append(1)
        raise OSError(errno.EINVAL, "Invalid argument")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR, "distlock"):
        patched.setattr(RedisClient, "_sleep", fail)
        link.cut()
        eventually(lambda: len(failed) > 2)
    link.restore()
    assert_goes_on(session, before, caplog)


@pytest.mark.usefixtures("link")
@pytest.mark.parametrize("error", [RuntimeError, Unforeseen])
def test_an_unknown_error_is_logged_once_and_leads_to_a_reconnection(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = await_connection()
    before, connection = session.id, session.connection

    def fail(*_: object) -> None:
        raise error("nobody has foreseen this")

    def met_three_times() -> bool:
        session.soon(partial(session.read, "/", ignore))
        return session.connection > connection + 6

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR, "distlock"):
        patched.setattr(RedisClient, "_receive", fail)
        eventually(met_three_times)
    assert_goes_on(session, before, caplog)
