"""One exception a cause: it travels between processes with its facts, and says what to do next."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from pytest_django import Settings

import distlock
from distlock import (
    DeadlockDetected,
    DistlockError,
    Hold,
    IncompatiblePeer,
    LimitReached,
    LockBusy,
    LockInTransaction,
    LockKeyError,
    LockLost,
    LockUnavailable,
    NotOwner,
    StaleToken,
    TooManyLocks,
    zk_lock,
)
from distlock.keys.znodes import Participant
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import raw_client

CAUSES = [
    LockBusy,
    LimitReached,
    LockUnavailable,
    LockLost,
    NotOwner,
    LockInTransaction,
    DeadlockDetected,
    StaleToken,
    LockKeyError,
    IncompatiblePeer,
    TooManyLocks,
]
HOLDER = Participant(path="/x/lock-0000000001", sequence=1, token=7, session_id=5, host="web1")


def test_there_is_one_class_a_cause_and_one_for_all() -> None:
    public = {getattr(distlock, name) for name in distlock.__all__}
    errors = {one for one in public if isinstance(one, type) and issubclass(one, Exception)}
    assert errors == {DistlockError, *CAUSES}
    handled_as = {TooManyLocks: LockUnavailable, LimitReached: LockBusy}
    assert all(cause.__bases__[0] is handled_as.get(cause, DistlockError) for cause in CAUSES)


@pytest.mark.parametrize(
    "error",
    [
        LockBusy("busy", key="a", holder=HOLDER, waited=1.5, retry_after=3.0, using="inventory"),
        LockUnavailable("away", key="a", retry_after=3.0, using="inventory"),
        LockLost("lost", reason="max_hold"),
        NotOwner("not yours"),
        LockInTransaction("in a transaction"),
        DeadlockDetected("for ever", key="a", using="inventory", cycle=(HOLDER,), retry_after=3.0),
        StaleToken("too late", token=3, newer=5),
        LockKeyError("no key"),
        IncompatiblePeer("kazoo"),
        LockBusy(),
        LockUnavailable(),
        LockLost(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_exception_travels_with_its_facts(error: DistlockError, protocol: int) -> None:
    arrived = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes
    assert type(arrived) is type(error)
    assert arrived.args == error.args
    assert vars(arrived) == vars(error)
    assert str(copy.copy(error)) == str(error)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_docstring_says_when_and_what_to_do(cause: type[DistlockError]) -> None:
    first, _, rest = str(cause.__doc__).partition("\n")
    assert first.endswith((".", "missing or empty"))
    assert len(rest.split()) > 8


# --- what is really raised -----------------------------------------------------------------------


def test_unavailable_says_where_and_how_to_start_a_server(settings: Settings) -> None:
    (port,) = free_ports(1)
    hosts = f"127.0.0.1:{port}"
    settings.DISTLOCK = {"default": {"HOSTS": hosts, "CONNECT_TIMEOUT": 0.3, "RETRY_AFTER": 7}}
    with pytest.raises(LockUnavailable) as away:
        zk_lock("k").acquire()
    assert hosts in str(away.value)
    assert "manage.py distlock server" in str(away.value)
    assert (away.value.key, away.value.retry_after, away.value.using) == ("k", 7, "default")


@pytest.mark.usefixtures("distlock_settings")
def test_a_lost_hold_says_stop_and_does_not_travel(zookeeper: ZooKeeper) -> None:
    with (  # noqa: PT012
        raw_client(zookeeper.hosts) as client,
        pytest.raises(LockLost, match="Stop, and do not write") as lost,
        zk_lock("k") as hold,
    ):
        client.delete(hold.path)
        hold.verify()
    assert isinstance(lost.value.hold, Hold)
    arrived: Any = pickle.loads(pickle.dumps(lost.value))  # noqa: S301
    assert str(arrived) == str(lost.value)
    assert arrived.hold is None
