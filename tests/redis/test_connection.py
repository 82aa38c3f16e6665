"""The connection thread outlives every error; the session goes on. See `tests.engine`, too."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import hiredis
import pytest

from distlock import zk_lock
from distlock.conf import Configuration
from distlock.engine.calls import Latch
from distlock.engine.redis.client import RedisClient
from distlock.engine.redis.requests import report
from distlock.engine.reply import ignore
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.redis_server import REFUSALS
from tests.interrupts.recipes import RECIPES, block_of
from tests.kit.helpers import eventually, logged, spawn_python
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, forgets_all, settle
from tests.redis.test_bad_input import await_no_nodes


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
        patched.setattr(Latch, "wait", fail)
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


# --- a signal while a request is packed ----------------------------------------------------------


#: Raises SIGINT and packs, both in C: so hiredis begins while a signal waits for its handler.
INTERRUPTED = """
import ctypes, random, signal, sys, threading
from functools import partial
from types import SimpleNamespace
from tests.kit.tools import set_up

set_up(sys.argv[1], "/packing")

import hiredis
from distlock import zk_lock
from distlock.engine.redis import requests

raise_sigint = partial(ctypes.pythonapi.PyErr_SetInterruptEx, signal.SIGINT)
chance, interrupts, armed = random.Random(1), 0, False

def pack_command(command):
    pack = partial(hiredis.pack_command, command)
    if threading.current_thread() is threading.main_thread() and armed and chance.random() < 0.5:
        return list(map(partial.__call__, (raise_sigint, pack)))[1]
    return pack()

requests.hiredis = SimpleNamespace(pack_command=pack_command)
lock = zk_lock("key")
for _ in range(300):
    armed = True
    try:
        lock.acquire()
        lock.release()
    except KeyboardInterrupt:
        interrupts += 1
    armed = False
    if lock.held:
        lock.release()
with lock:
    print(interrupts)
"""


def test_a_handler_may_raise_wherever_a_request_is_packed(redis: Redis) -> None:
    with spawn_python(INTERRUPTED, redis.new_database()) as process:
        said, errors = process.communicate(timeout=6 * PATIENCE)
    assert process.returncode == 0, errors
    assert int(said) > 150


def test_the_library_packs_only_bytes(
    use: Callable[..., None], redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[Any] = []
    pack = hiredis.pack_command

    def record(command: tuple[Any, ...]) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("distlock"):  # redis-py packs, too
            packed.extend(command)
        return pack(command)

    monkeypatch.setattr(hiredis, "pack_command", record)
    use(redis.new_database())
    for recipe in RECIPES:
        block_of(recipe)()
    close_sessions()
    report(Configuration(hosts="redis://user:password@localhost/1"), 1, b"password")
    assert {b"HELLO", b"EVALSHA", b"AUTH", b"SELECT"} <= set(packed)
    assert {type(part) for part in packed} == {bytes}


# --- releases that are refused -------------------------------------------------------------------


@pytest.mark.parametrize("error", sorted(REFUSALS))
def test_a_refused_release_is_repeated_and_reported_once(
    use: Callable[..., None], caplog: pytest.LogCaptureFixture, error: str
) -> None:
    with Redis() as server:
        use(server.hosts, SESSION_TIMEOUT=20)
        lock = zk_lock("key")
        lock.acquire()
        session = await_connection()
        before = session.id
        with server.refusing(error):
            lock.release()
            eventually(lambda: refused(caplog) or not session.connected, PATIENCE, "a refusal")
        await_no_nodes(server)
        assert session.id == before
        forgets_all(session)
        # A server that is no primary any more is left, and reported as an outage.
        assert len(refused(caplog)) == (error != "READONLY")


def test_a_waiter_comes_though_the_end_of_hold_at_least_was_refused(
    use: Callable[..., None], make_owner: MakeOwner, caplog: pytest.LogCaptureFixture
) -> None:
    with Redis() as server:
        use(server.hosts, SESSION_TIMEOUT=20)
        waiter, lock = make_owner(), zk_lock("key")
        with zk_lock("key", hold_at_least=3):
            granted = waiter.submit(lock.acquire, timeout=PATIENCE)
            eventually(lambda: len(lock.participants()) == 3)
        settle(session_for())  # the holder's node is gone
        with server.refusing("NOREPLICAS"):
            eventually(lambda: refused(caplog), PATIENCE, "a refusal")
        assert granted.result(PATIENCE)
        waiter.now(lock.release)
        await_no_nodes(server)


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in logged(caplog) if "could not be deleted" in line]
