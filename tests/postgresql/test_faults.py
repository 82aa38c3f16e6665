"""A server that ends, restarts or is replaced gives no lock to two."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from distlock import LockLost, LockUnavailable, zk_lease, zk_lock
from distlock.session.registry import close_sessions, session_for
from tests.kit.helpers import eventually
from tests.kit.losses import pass_time
from tests.kit.services import Postgres
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, inside

from .tools import SESSION_TIMEOUT, assert_told_before_a_rival_comes, linked


def test_a_crash_ends_each_hold_before_a_rival_comes(
    server: Postgres, make_owner: MakeOwner
) -> None:
    holder = make_owner()
    hold = holder.now(zk_lock("key").__enter__)
    assert zk_lease("nightly", 600, owner="me").acquire()
    await_connection("other")
    server.crash()
    server.run()
    with pytest.raises(LockUnavailable, match=r"recovered from a crash.* for \d\.\d s more"):
        zk_lock("key", using="other").acquire()
    assert_told_before_a_rival_comes(hold)
    rival = zk_lock("key", using="other")
    assert (rival.holder() or hold).token > hold.token
    rival.release()
    with pytest.raises(LockLost):
        holder.now(zk_lock("key").release)
    assert not zk_lease("nightly", 600, owner="you", using="other").acquire(timeout=0)


def test_a_restart_keeps_locks_and_grants_at_once(server: Postgres, make_owner: MakeOwner) -> None:
    holder = make_owner()
    hold = holder.now(zk_lock("key").__enter__)
    session = await_connection()
    before = session.id
    server.shut_down()
    server.run()
    with zk_lock("another", using="other", timeout=PATIENCE):
        assert not zk_lock("key", using="other").acquire(timeout=0)
    eventually(lambda: session.connected, PATIENCE)
    assert session.id == before
    hold.verify()
    holder.now(zk_lock("key").release)
    with zk_lock("key", using="other"):
        pass


def test_a_request_that_was_cut_in_two_costs_no_other_hold(
    server: Postgres, namespace: str, make_owner: MakeOwner
) -> None:
    """The server keeps its locks of rows, and finds only in time that its client is gone."""
    holder, waiter = make_owner(), make_owner()
    with zk_lock("key"):
        hold = holder.now(zk_lock("unrelated").__enter__)
    database = server.hosts.partition(":")[2]
    with psycopg.connect(database) as cut:
        cut.execute("SELECT distlock_lock(%s)", (f"{namespace}/key",))
        waiting = waiter.submit(zk_lock("key", timeout=PATIENCE).acquire)
        pass_time(1.5 * SESSION_TIMEOUT)
        hold.verify()
        assert not waiting.done()
    assert waiting.result(PATIENCE)
    waiter.now(zk_lock("key").release)
    holder.now(zk_lock("unrelated").release)


def test_a_lost_connection_is_made_again_for_the_same_session(
    server: Postgres, make_owner: MakeOwner
) -> None:
    holder, waiter, *others = (make_owner() for _ in range(6))
    hold = holder.now(zk_lock("key").__enter__)
    waiting = waiter.submit(zk_lock("key", using="other", timeout=PATIENCE).acquire)
    eventually(lambda: len(zk_lock("key").participants()) == 2, PATIENCE, "a waiter")
    before = session_for("default").id
    client = inside(session_for("default"))
    for _ in range(3):
        noticed = threading.Event()
        client.soon(noticed.wait)
        ended = server.ask(
            "SELECT pg_terminate_backend(pid, 9000) FROM pg_stat_activity "
            "WHERE application_name LIKE 'distlock %%' AND pid <> pg_backend_pid()"
        )
        assert ended
        checks = [owner.submit(hold.verify) for owner in others]
        eventually(lambda: len(client.steps) == len(others), PATIENCE, "requests to be sent")
        noticed.set()
        for check in checks:
            check.result(PATIENCE)
    assert session_for("default").id == before
    assert not waiting.done()
    holder.now(zk_lock("key").release)
    assert waiting.result(PATIENCE)
    waiter.now(zk_lock("key", using="other").release)


@pytest.mark.parametrize("how", ["cut", "black_hole", "half"])
def test_a_holder_that_is_cut_off_knows_before_a_rival_comes(
    server: Postgres, use: Callable[..., None], make_owner: MakeOwner, how: str
) -> None:
    holder = make_owner()
    with linked(server) as (link, hosts):
        use(hosts, server.hosts)
        hold = holder.now(zk_lock("key").__enter__)
        await_connection("other")
        if how == "half":
            link.black_hole("to_client")
        else:
            getattr(link, how)()
        assert assert_told_before_a_rival_comes(hold) > SESSION_TIMEOUT / 2
        zk_lock("key", using="other").release()
        link.pass_through()
        with pytest.raises(LockLost):
            holder.now(zk_lock("key").release)
        close_sessions()
