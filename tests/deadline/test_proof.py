"""What a renewal of the session's deadline is proved by: a `sync`, or a write.

A deposed leader answers a `sync`; that it answers no write is in `test_partition`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import (
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.serialization import Transaction

from distlock import LockUnavailable, zk_lock
from distlock.engine.zookeeper.client import Client
from distlock.session.registry import session_for
from distlock.session.session import Session
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE, await_connection, inside

KEY = "key"
T = 20.0  # heartbeats do not come between what happens here

pytestmark = pytest.mark.usefixtures("tree")


@pytest.fixture
def quiet(set_options: SetOptions) -> Session:
    """The session of this process, which sends no heartbeat while the test lasts."""
    set_options(SESSION_TIMEOUT=T)
    return await_connection()


def prove(session: Session) -> bool:
    """Renew the deadline, and return whether that was acknowledged."""

    def ask(done: Callable[..., None]) -> None:
        session.prove(lambda acknowledged: done(acknowledged, None))

    return bool(session.call(ask, timeout=PATIENCE, key=""))


@pytest.mark.parametrize(
    ("passed", "kind"),
    [(0, "Sync"), (T / 3 - 1, "Sync"), (T / 3 + 0.1, "Transaction")],
)
def test_a_late_renewal_is_a_write(
    quiet: Session,
    requests: list[str],
    shift_clock: Callable[[float], None],
    passed: float,
    kind: str,
) -> None:
    zk_lock(KEY).acquire()
    zk_lock(KEY).release()
    requests.clear()
    shift_clock(passed)
    assert prove(quiet)
    assert requests == [kind]
    assert quiet.deadline.remaining > T * 2 / 3 - 1


def test_after_a_long_stop_a_new_connection_renews_the_deadline(
    quiet: Session, requests: list[str], shift_clock: Callable[[float], None]
) -> None:
    """What was sent before the stop is too old to count, and what was sent since is too new."""
    zk_lock(KEY).acquire()
    zk_lock(KEY).release()
    requests.clear()
    connection = quiet.connection
    shift_clock(T)
    assert prove(quiet)
    assert requests == ["Transaction"]
    assert quiet.deadline.remaining == 0
    eventually(lambda: quiet.connected and quiet.connection > connection + 1)
    assert prove(quiet)
    assert quiet.deadline.remaining > T * 2 / 3 - 1


def test_the_first_renewal_of_a_session_is_a_write(quiet: Session, requests: list[str]) -> None:
    requests.clear()
    assert prove(quiet)
    assert requests == ["Transaction"]


@pytest.mark.parametrize(
    ("outcome", "proven"),
    [
        (SessionExpiredError(), False),
        (SessionMovedError(), False),
        (NoNodeError(), True),
        (NoAuthError(), True),
        (True, True),
    ],
)
def test_a_write_that_the_leader_refuses_to_the_session_proves_nothing(
    quiet: Session, monkeypatch: pytest.MonkeyPatch, outcome: Any, proven: bool
) -> None:
    """ZooKeeper answers a transaction of an ending session with an error among its outcomes.

    For one of a session that has moved it also closes the connection, since ZooKeeper 3.6
    (``FinalRequestProcessor``, ``case multi``).
    """
    submit = Client.submit

    def answer(client: Client, call: tuple[Any, Any], **how: Any) -> None:
        request, reply = call
        if isinstance(request, Transaction):
            client.soon(lambda: reply.settle([outcome], None))
        else:
            submit(client, call, **how)

    monkeypatch.setattr(Client, "submit", answer)
    assert prove(quiet) is proven
    assert quiet.deadline.running is proven


# --- Hold.verify ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("strict", "kind"), [(False, "Sync"), (True, "Transaction")])
def test_verify_asks_the_leader_and_reads_in_one_write(
    set_options: SetOptions,
    requests: list[str],
    monkeypatch: pytest.MonkeyPatch,
    strict: bool,
    kind: str,
) -> None:
    set_options(SESSION_TIMEOUT=T, STRICT=strict)
    with zk_lock(KEY) as hold:
        connection = inside(session_for())._connection
        written: list[bytes] = []
        write = connection._write

        def note(message: bytes, timeout: float) -> None:
            written.append(message)
            write(message, timeout)

        monkeypatch.setattr(connection, "_write", note)
        requests.clear()
        hold.verify(timeout=PATIENCE)
        assert requests == [kind, "GetData"]
        assert len(written) == 1


@pytest.mark.usefixtures("quiet")
def test_verify_renews_the_deadline(shift_clock: Callable[[float], None]) -> None:
    with zk_lock(KEY) as hold:
        shift_clock(T / 2)
        assert hold.valid_for() < T / 3
        hold.verify(timeout=PATIENCE)
        assert hold.valid_for() > T / 3


@pytest.mark.usefixtures("quiet")
def test_verify_does_not_believe_what_was_read_without_a_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Session, "prove", lambda _, then: then(False))
    with zk_lock(KEY) as hold, pytest.raises(LockUnavailable):
        hold.verify(timeout=PATIENCE)
