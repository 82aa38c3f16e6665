"""A server whose clock is set gives no lock away, and its tokens rise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from distlock import LockUnavailable, zk_lock
from distlock.engine.postgresql import server as postgresql_server
from distlock.session.registry import close_sessions
from distlock_chaos.server import ServerNotInstalled
from tests.kit.engines import tree_at
from tests.kit.helpers import eventually
from tests.kit.services import Postgres, PostgresNotInstalled
from tests.kit.tools import PATIENCE, MakeOwner, await_connection

from .tools import SESSION_TIMEOUT, assert_told_before_a_rival_comes, linked

pytestmark = pytest.mark.deep

#: More than any session lasts, in seconds.
STEP = 600


@pytest.fixture(scope="module")
def _clocked() -> Iterator[Postgres]:
    server = Postgres(own={"synchronous_commit": "on"}, stepping_clock=True)
    try:
        server.start()
    except (PostgresNotInstalled, ServerNotInstalled) as error:
        pytest.skip(str(error))
    yield server
    server.stop()


@pytest.fixture
def clocked(
    _clocked: Postgres, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Postgres]:
    """A server whose clock can be set, with a new database for both aliases."""
    monkeypatch.setattr(postgresql_server, "_USUAL_SECONDS", SESSION_TIMEOUT)
    _clocked.hosts = _clocked.new_database()
    use(_clocked.hosts)
    yield _clocked
    close_sessions()
    _clocked.set_clock(0)


@pytest.mark.parametrize("step", [STEP, -STEP])
def test_a_holder_in_touch_keeps_its_lock(
    clocked: Postgres, make_owner: MakeOwner, step: float
) -> None:
    holder = make_owner()
    hold = holder.now(zk_lock("key").__enter__)
    await_connection("other")
    clocked.set_clock(step)
    assert not zk_lock("key", using="other").acquire(timeout=2 * SESSION_TIMEOUT)
    hold.verify()
    holder.now(zk_lock("key").release)


def test_a_clock_that_is_set_back_keeps_no_dead_session(
    clocked: Postgres, use: Callable[..., None], make_owner: MakeOwner
) -> None:
    holder = make_owner()
    with linked(clocked) as (link, hosts):
        use(hosts, clocked.hosts)
        hold = holder.now(zk_lock("key").__enter__)
        await_connection("other")
        link.cut()
        clocked.set_clock(-STEP)
        assert_told_before_a_rival_comes(hold)
        zk_lock("key", using="other").release()
        close_sessions()


def test_tokens_rise_after_a_clock_was_set_back(clocked: Postgres, namespace: str) -> None:
    with zk_lock("key") as hold:
        first = hold.token
    with tree_at(clocked.hosts, namespace) as tree:  # also once the line has been forgotten
        eventually(lambda: not tree.children(namespace), PATIENCE, "no container")
    clocked.set_clock(-STEP)
    with zk_lock("key") as hold:
        assert hold.token > first


def test_a_crash_and_a_clock_that_is_set_back_end_no_hold_early(
    clocked: Postgres, use: Callable[..., None], make_owner: MakeOwner
) -> None:
    holder = make_owner()
    with linked(clocked) as (link, hosts):
        use(hosts, clocked.hosts)
        hold = holder.now(zk_lock("key").__enter__)
        link.black_hole()
        clocked.crash()
        clocked.run()
        with pytest.raises(LockUnavailable, match="recovered from a crash"):
            zk_lock("key", using="other").acquire()
        clocked.set_clock(-1)
        assert_told_before_a_rival_comes(hold)
        zk_lock("key", using="other").release()
        close_sessions()
