"""Behind PgBouncer in transaction mode, where a lock of a connection excludes nobody."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from distlock import zk_lock
from distlock.management.subcommands.doctor import diagnose
from tests.kit.engines import tree_at
from tests.kit.helpers import spawn_python
from tests.kit.services import PgBouncer, PgBouncerNotInstalled, Postgres
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection

#: The control, as django-pglock takes it with timeout=0: if it waited, it might wait for ever.
ADVISORY = """
connection = psycopg.connect(sys.argv[1].partition(":")[2], autocommit=True)
connection.prepare_threshold = None
def acquire():
    while time.monotonic() < end:
        if connection.execute("SELECT pg_try_advisory_lock(1)").fetchone()[0]:
            return
        time.sleep(0.001)
def release():
    connection.execute("SELECT pg_advisory_unlock(1)")
"""
OURS = """
lock = zk_lock("key")
acquire, release = lock.acquire, lock.release
"""
#: Enters and leaves for some seconds, and counts how often it was not alone.
CONTENDS = """
import psycopg, sys, time
from pathlib import Path
from tests.interop.tools import Witness
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], TIMEOUT=30)
from distlock import zk_lock
{lock}
witness, holds, overlaps = Witness(Path(sys.argv[3]), "mutex"), 0, 0
end = time.monotonic() + float(sys.argv[4])
while time.monotonic() < end:
    acquire()
    overlaps += witness.is_crowded()
    release()
    holds += 1
print(holds, overlaps)
"""


@pytest.fixture(scope="module")
def pooler(postgres: Postgres) -> Iterator[PgBouncer]:
    try:
        pooler = PgBouncer(postgres).start()
    except PgBouncerNotInstalled as error:
        pytest.skip(str(error))
    yield pooler
    pooler.stop()


@pytest.fixture
def hosts(postgres: Postgres, pooler: PgBouncer, use: Callable[..., None]) -> str:
    """A database that both aliases use by way of the pooler."""
    hosts = pooler.hosts(postgres.new_database())
    use(hosts)
    return hosts


@pytest.mark.usefixtures("hosts")
def test_the_pooler_is_noticed_and_a_waiter_looks_for_its_turn(make_owner: MakeOwner) -> None:
    holder, waiter = make_owner(), make_owner()
    first, second = zk_lock("key"), zk_lock("key", using="other", timeout=PATIENCE)
    assert holder.now(first.acquire)
    await_connection("other")
    waiting = waiter.submit(second.acquire)
    time.sleep(1)  # until its looks are as rare as they get
    assert not waiting.done()
    holder.now(first.release)
    released_at = time.monotonic()
    assert waiting.result(PATIENCE)
    assert time.monotonic() - released_at < 1
    waiter.now(second.release)
    (found,) = [one for one in diagnose(timeout=PATIENCE) if one.subject == "notifications"]
    assert found.level == "warning"
    assert "a pooler is in between" in found.message


def test_a_waiter_looks_from_the_moment_at_which_it_joins(
    hosts: str, namespace: str, make_owner: MakeOwner
) -> None:
    """It does not wait for the next heartbeat, which comes several times in a session timeout."""
    turns = deque([(make_owner(), zk_lock("key", timeout=PATIENCE, using="default"))])
    turns.append((make_owner(), zk_lock("key", timeout=PATIENCE, using="other")))
    turns[0][0].now(turns[0][1].acquire)
    took = 0.0
    with tree_at(hosts, namespace) as tree:
        for _ in range(8):
            (holder, held), (waiter, wanted) = turns
            waiting = waiter.submit(wanted.acquire)
            tree.await_line("key", 2)
            holder.now(held.release)
            released_at = time.monotonic()
            assert waiting.result(PATIENCE)
            took += time.monotonic() - released_at
            turns.rotate()
    assert took < 1
    turns[0][0].now(turns[0][1].release)


def contend(lock: str, hosts: str, tree: Tree, folder: Path, disturb: Callable[[], None]) -> int:
    """Return how often four processes met while they held it."""
    code, arguments = CONTENDS.format(lock=lock), (hosts, tree.namespace, str(folder), "8")
    with ExitStack() as stack:
        processes = [stack.enter_context(spawn_python(code, *arguments)) for _ in range(4)]
        disturb()
        overlaps = 0
        for process in processes:
            told, errors = process.communicate(timeout=90)
            assert process.returncode == 0, errors
            holds, met = map(int, told.split())
            assert holds
            overlaps += met
    return overlaps


@pytest.mark.deep
def test_processes_exclude_each_other_while_connections_are_ended(
    hosts: str, postgres: Postgres, tmp_path: Path, namespace: str
) -> None:
    def end_connections() -> None:
        database = hosts.rpartition("/")[2]
        for _ in range(5):
            time.sleep(1.5)
            postgres.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                database,
            )

    with tree_at(hosts, namespace) as tree:
        assert contend(OURS, hosts, tree, tmp_path, end_connections) == 0


@pytest.mark.deep
def test_a_lock_of_the_connection_does_not(hosts: str, tmp_path: Path, namespace: str) -> None:
    """The control: the witness finds it, and the pooler gives connections to others."""
    with tree_at(hosts, namespace) as tree:
        assert contend(ADVISORY, hosts, tree, tmp_path, lambda: None) > 0
