"""Parents of nodes go when they have been empty for a while."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.kit.helpers import eventually
from tests.kit.services import Postgres

#: More than one look takes: 150 containers, each with a child.
MANY = """
    SELECT distlock_step(0, 'create', '', n::text, '', 4),
        distlock_step(0, 'create', '/' || n, 'child', '', 0)
    FROM generate_series(100, 249) n
"""


def test_an_empty_one_goes_however_many_others_stay(postgres: Postgres) -> None:
    database = postgres.new_database().rpartition("/")[2]
    postgres.ask(MANY, database=database)
    postgres.ask("SELECT distlock_step(0, 'delete', '/249', 'child', '', -1)", database=database)
    looks = [
        postgres.ask("SELECT answer FROM distlock_expire(0)", database=database) for _ in range(2)
    ]
    assert looks == [[(0,)]] * 2  # soon again
    last = "SELECT max(path) FROM distlock_node WHERE parent = ''"
    assert postgres.ask(last, database=database) == [("/248",)]


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ("step(0, 'delete', '', 'a', '', -1)", "step(0, 'create', '/a', 'b', '', 0)", "NONODE"),
        ("step(0, 'set', '', 'a', '5', -1)", "look(1, '', 1, 'look', '/a', false, true)", None),
    ],
)
def test_what_waits_for_a_change_of_it_sees_what_has_become_of_it(
    postgres: Postgres, first: str, then: str, told: str | None
) -> None:
    """It goes while another process makes its first child, or moves as it gets data."""
    url = postgres.new_database().partition(":")[2]
    with (
        psycopg.connect(url) as changes,
        psycopg.connect(url, autocommit=True) as waits,
        ThreadPoolExecutor() as pool,
    ):
        waits.execute("SELECT distlock_connect(1, '', 1, true, true, 9000, 0)")
        waits.execute("SELECT distlock_step(0, 'create', '', 'a', '', 4)")
        changes.execute(f"SELECT distlock_{first}".encode())
        asked = f"SELECT refusal FROM distlock_{then}".encode()  # noqa: S608 - no input
        waiting = pool.submit(lambda: waits.execute(asked).fetchone())
        blocked = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        eventually(lambda: postgres.ask(blocked, waits.info.backend_pid), message="it waits")
        changes.commit()
        assert waiting.result() == (told,)
        assert not waits.execute("SELECT FROM distlock_node WHERE parent = '/a'").fetchall()
