"""A standby has no locks; one that is promoted grants none for the longest session timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from distlock import LockUnavailable, zk_lease, zk_lock
from distlock.engine.postgresql import server as postgresql_server
from distlock.session.registry import close_sessions
from tests.kit.helpers import eventually
from tests.kit.services import Postgres, PostgresNotInstalled
from tests.kit.tools import PATIENCE, MakeOwner, await_connection

from .tools import SESSION_TIMEOUT, assert_told_before_a_rival_comes, grants, linked

pytestmark = pytest.mark.deep


@pytest.fixture(params=["async", "sync"])
def pair(
    request: pytest.FixtureRequest, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Postgres, Postgres]]:
    """A primary, which both aliases use, and its standby."""
    monkeypatch.setattr(postgresql_server, "_USUAL_SECONDS", SESSION_TIMEOUT)
    primary = Postgres(own={"synchronous_commit": "on", "wal_sender_timeout": "2s"})
    try:
        primary.start()
    except PostgresNotInstalled as error:
        pytest.skip(str(error))
    primary.hosts = primary.new_database()
    standby = Postgres(own={}, primary=primary).start()
    standby.hosts = primary.hosts.replace(str(primary.port), str(standby.port))
    eventually(lambda: primary.ask("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))
    if request.param == "sync":
        primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        primary.ask("SELECT pg_reload_conf()")
        eventually(
            lambda: primary.ask("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
        )
    use(primary.hosts)
    yield primary, standby
    close_sessions()
    standby.stop()
    primary.stop()


def promote(standby: Postgres) -> None:
    standby.ask("SELECT pg_promote()")


def test_a_standby_is_refused(pair: tuple[Postgres, Postgres], use: Callable[..., None]) -> None:
    use(pair[1].hosts)
    with pytest.raises(LockUnavailable, match=r"is a standby, or read-only.* Name the primary"):
        zk_lock("key").acquire()


def test_a_promoted_standby_keeps_leases_and_ends_holds_first(
    pair: tuple[Postgres, Postgres], use: Callable[..., None], make_owner: MakeOwner
) -> None:
    primary, standby = pair
    holder = make_owner()
    hold = holder.now(zk_lock("key").__enter__)
    assert zk_lease("nightly", 600, owner="me").acquire()
    (end,) = primary.ask("SELECT pg_current_wal_lsn()")[0]
    eventually(lambda: standby.ask("SELECT pg_last_wal_replay_lsn() >= %s", end)[0][0], PATIENCE)
    primary.crash()
    promote(standby)
    use(primary.hosts, standby.hosts)
    with pytest.raises(LockUnavailable, match="taken the place of another server"):
        zk_lock("key", using="other").acquire()
    assert_told_before_a_rival_comes(hold)
    rival = zk_lock("key", using="other")
    assert (rival.holder() or hold).token > hold.token
    rival.release()
    assert not zk_lease("nightly", 600, owner="you", using="other").acquire(timeout=0)


@pytest.mark.parametrize("pair", ["sync"], indirect=True)
def test_a_primary_without_its_synchronous_standby_begins_and_renews_no_session(
    pair: tuple[Postgres, Postgres], use: Callable[..., None], make_owner: MakeOwner
) -> None:
    primary, standby = pair
    primary.ask("ALTER ROLE postgres SET synchronous_commit = 'off'")  # for speed, as some do
    holder = make_owner()
    hold = holder.now(zk_lock("key").__enter__)
    await_connection()
    standby.ask("ALTER SYSTEM SET primary_conninfo = ''")  # cut off from each other
    standby.ask("SELECT pg_reload_conf()")
    promote(standby)

    def is_lost() -> bool:
        # A cancelled wait acknowledges the commit, with a warning.
        primary.ask(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
        return hold.lost

    eventually(is_lost, 3 * SESSION_TIMEOUT, "a hold that is lost")
    with linked(primary) as (link, hosts):
        use(hosts, CONNECT_TIMEOUT=SESSION_TIMEOUT)
        with pytest.raises(LockUnavailable):
            zk_lock("key", using="other").acquire()
        link.lead_to(standby.port)  # what connects from now on; the primary answers nothing
        eventually(grants, PATIENCE, "a grant")
        zk_lock("key", using="other").release()
        close_sessions()
