"""Lost replies, outages and interruptions: nothing is taken twice, and nothing stays by mistake."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from distlock import LockLost, LockUnavailable, NotOwner, zk_lease
from distlock.session.registry import session_for
from distlock.session.session import Session
from distlock.signals import lock_acquired
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import (
    OVERRUN,
    PATIENCE,
    MakeOwner,
    Tree,
    await_connection,
    forgets_all,
    within,
)
from tests.lease.tools import LONG, SHORT, node_path, owner_of, said

pytestmark = pytest.mark.usefixtures("tree")

Heal = Any

#: How long a call waits for an answer in a hurry, in seconds.
HURRY = 0.8


@pytest.fixture
def connected(tree: Tree, link: TcpProxy) -> TcpProxy:
    """The link that breaks, in use, with parents that the server does not remove."""
    await_connection()
    await_connection("other")
    tree.client.create(node_path(tree, "keeps-the-parents"), b"", makepath=True)
    return link


def cut_and_heal(link: TcpProxy) -> None:
    link.cut()
    eventually(lambda: not session_for().connected, PATIENCE)
    link.pass_through()


heals = pytest.mark.parametrize("heal", [TcpProxy.pass_through, cut_and_heal], ids=["late", "lost"])


# --- the caller waits ----------------------------------------------------------------------------


@heals
def test_a_create_whose_reply_is_late_or_lost_is_found_and_used(
    tree: Tree, connected: TcpProxy, make_owner: MakeOwner, heal: Heal
) -> None:
    connected.black_hole("to_client")
    granted = make_owner().submit(zk_lease("key", LONG, owner="me").acquire)
    eventually(lambda: said(tree, "key"), PATIENCE)
    token = tree.client.exists(node_path(tree, "key")).czxid
    heal(connected)
    assert granted.result(PATIENCE)
    assert zk_lease("key", LONG, owner="me").renew().token == token
    forgets_all(session_for())


@heals
def test_a_renewal_whose_reply_is_late_or_lost_is_made_sure_of(
    tree: Tree, connected: TcpProxy, make_owner: MakeOwner, heal: Heal
) -> None:
    lease = zk_lease("key", LONG, owner="me")
    assert lease.acquire()
    hold = lease.renew()
    version = tree.client.exists(hold.path).version
    connected.black_hole("to_client")
    renewed = make_owner().submit(lease.renew, LONG * 2)
    eventually(lambda: tree.client.exists(hold.path).version > version, PATIENCE)
    heal(connected)
    assert renewed.result(PATIENCE) is hold
    assert hold.valid_for() > LONG
    lease.release()
    assert said(tree, "key") is None


@heals
def test_a_release_whose_reply_is_late_or_lost_is_one(
    tree: Tree, connected: TcpProxy, make_owner: MakeOwner, heal: Heal
) -> None:
    lease = zk_lease("key", LONG, owner="me")
    assert lease.acquire()
    connected.black_hole("to_client")
    released = make_owner().submit(lease.release)
    eventually(lambda: said(tree, "key") is None, PATIENCE)
    assert zk_lease("key", LONG, owner="you", using="other").acquire(timeout=0)
    heal(connected)
    assert released.result(PATIENCE) is None
    assert owner_of(tree, "key") == "you"


def test_a_waiter_goes_on_after_a_cut(
    tree: Tree, connected: TcpProxy, make_owner: MakeOwner
) -> None:
    yours = zk_lease("key", LONG, owner="you", using="other")
    assert yours.acquire()
    waiting = make_owner().submit(zk_lease("key", LONG, owner="me").acquire)
    tree.await_watches(node_path(tree, "key"))
    connected.cut()
    eventually(lambda: not session_for().connected, PATIENCE)
    yours.release()
    connected.pass_through()
    assert waiting.result(PATIENCE)
    forgets_all(session_for())


# --- the caller has gone -------------------------------------------------------------------------


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """Wait for an answer for 0.8 s at most."""
    conf = session_for().conf
    patience = conf.connect_timeout
    object.__setattr__(conf, "connect_timeout", HURRY)
    try:
        yield
    finally:
        object.__setattr__(conf, "connect_timeout", patience)


@heals
@pytest.mark.parametrize("direction", ["to_client", "to_server"])
def test_what_was_taken_after_the_caller_gave_up_is_given_back(
    tree: Tree, connected: TcpProxy, heal: Heal, direction: Any
) -> None:
    before = tree.client.exists(f"{tree.namespace}/@leases").cversion
    connected.black_hole(direction)
    with in_a_hurry(), within(HURRY + OVERRUN), pytest.raises(LockUnavailable):
        zk_lease("key", LONG, owner="me").acquire(timeout=PATIENCE)
    if direction == "to_client":
        eventually(lambda: said(tree, "key"), PATIENCE)
    heal(connected)
    if direction == "to_client" or heal is not cut_and_heal:
        # It was made, or the test proves nothing, and is gone.
        eventually(
            lambda: tree.client.exists(f"{tree.namespace}/@leases").cversion == before + 2,
            PATIENCE,
        )
    eventually(lambda: session_for().connected, PATIENCE)
    forgets_all(session_for())
    assert said(tree, "key") is None


@heals
def test_a_renewal_that_was_given_up_does_not_end_the_lease(
    tree: Tree, connected: TcpProxy, heal: Heal
) -> None:
    lease = zk_lease("key", LONG, owner="me")
    with lease as hold:
        connected.black_hole("to_client")
        for call in (lease.renew, lease.acquire):
            with in_a_hurry(), within(HURRY + OVERRUN), pytest.raises(LockUnavailable):
                call()
        assert hold.valid_for() > 0
        heal(connected)
        eventually(lambda: session_for().connected, PATIENCE)
        forgets_all(session_for())
        assert owner_of(tree, "key") == "me"
    # The version is not the one that was known, but the renewal was this process's own.
    assert said(tree, "key") is None


def test_what_is_about_to_be_sent_when_its_caller_leaves_is_given_back(
    tree: Tree, connected: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = Session.transact

    def leave_and_send(session: Session, steps: Any, done: Any) -> None:
        if not operation.left:
            caller = threading.Thread(target=operation.leave)
            caller.start()
            caller.join(PATIENCE)
        transact(session, steps, done)

    before = tree.client.exists(f"{tree.namespace}/@leases").cversion
    lease = zk_lease("key", LONG, owner="me")
    operation = lease._operation(lease._identity(), None, LONG)
    cut_later(connected)
    next(operation.steps(operation.acquire(LONG), lambda: None))
    monkeypatch.setattr(Session, "transact", leave_and_send)
    connected.pass_through()
    eventually(
        lambda: tree.client.exists(f"{tree.namespace}/@leases").cversion == before + 2, PATIENCE
    )
    assert said(tree, "key") is None
    forgets_all(session_for())


def test_an_interrupt_in_the_instant_of_the_grant_gives_it_back(tree: Tree) -> None:
    def interrupt(**_: Any) -> None:
        raise KeyboardInterrupt

    lease = zk_lease("key", LONG, owner="me")
    lock_acquired.connect(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            lease.acquire()
        with pytest.raises(KeyboardInterrupt), lease:
            pass
    finally:
        lock_acquired.disconnect(interrupt)
    eventually(lambda: said(tree, "key") is None, PATIENCE)
    assert not lease.held
    with lease:
        assert lease.held


# --- bounds --------------------------------------------------------------------------------------


def cut_later(link: TcpProxy) -> None:
    link.cut()
    eventually(lambda: not session_for().connected, PATIENCE)


FAULTS = [cut_later, TcpProxy.black_hole, lambda link: link.black_hole("to_client")]


@pytest.mark.parametrize("fault", FAULTS, ids=["cut", "silent", "answers lost"])
@pytest.mark.parametrize("call", ["acquire", "renew", "release", "holder", "block"])
@pytest.mark.usefixtures("as_shipped")
def test_no_call_outlives_its_time(connected: TcpProxy, fault: Any, call: str) -> None:
    lease = zk_lease("key", LONG, owner="me", timeout=None)
    fault(connected)
    order: Any = getattr(lease, "__enter__" if call == "block" else call)
    with in_a_hurry(), within(HURRY + OVERRUN), pytest.raises(LockUnavailable) as raised:
        order()
    assert raised.value.key == "key"


def test_a_block_that_cannot_be_released_in_time_was_still_held(
    connected: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    lease = zk_lease("key", LONG)
    hold = lease.__enter__()
    connected.black_hole("to_server")
    with in_a_hurry(), within(HURRY + OVERRUN):
        lease.__exit__(None, None, None)
    assert "could not be released. It ends by itself at" in caplog.text
    assert hold.valid_for() > 0


def test_a_block_that_cannot_be_released_after_its_time_is_lost(connected: TcpProxy) -> None:
    lease = zk_lease("key", SHORT)
    hold = lease.__enter__()
    connected.black_hole("to_server")
    eventually(lambda: hold.lost, PATIENCE)
    with (
        in_a_hurry(),
        within(HURRY + OVERRUN),
        pytest.raises(LockLost, match="Nobody knows whether"),
    ):
        lease.__exit__(None, None, None)


# --- restarts ------------------------------------------------------------------------------------

PUBLISHES = """
import os, sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], CONNECT_TIMEOUT=15)
from distlock import zk_lease
lease = zk_lease("key", 600, owner="task", timeout=15)
assert lease.acquire()
print(lease.renew().token)
if sys.argv[3] == "killed":
    os._exit(0)
"""
"""Takes a lease and ends, in order or not."""


@pytest.mark.parametrize("end", ["in order", "killed"])
def test_a_lease_outlives_its_process_and_is_ended_by_another(
    tree: Tree, zookeeper: ZooKeeper, end: str
) -> None:
    from tests.kit.helpers import spawn_python  # noqa: PLC0415

    with spawn_python(PUBLISHES, zookeeper.hosts, tree.namespace, end) as process:
        out, errors = process.communicate(timeout=40)
    assert out, errors
    assert not zk_lease("key", LONG, owner="rival").acquire(timeout=0)
    with zk_lease("key", LONG, owner="task") as hold:
        assert hold.token == int(out)
    assert said(tree, "key") is None
    with pytest.raises(NotOwner):
        zk_lease("key", LONG, owner="task").release()


def test_a_lease_outlives_the_server(own_zookeeper: ZooKeeper) -> None:
    lease = zk_lease("key", LONG, owner="me")
    assert lease.acquire()
    hold = lease.renew()
    (server,) = own_zookeeper.servers
    server.stop()
    eventually(lambda: not session_for().connected, PATIENCE)
    assert hold.valid_for() > 0
    server.start()
    eventually(lambda: session_for().connected, 2 * PATIENCE)
    assert not zk_lease("key", LONG, owner="you", using="other").acquire(timeout=0.1)
    assert lease.renew() is hold
    lease.release()
