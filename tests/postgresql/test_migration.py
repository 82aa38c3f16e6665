"""The migration makes all that locks need in a PostgreSQL database, and takes all of it away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from pytest_django import DjangoDbBlocker, Settings

from distlock import LockUnavailable, zk_lock
from distlock.session.registry import close_sessions
from tests.kit.services import Postgres

NAMES = """
    SELECT relname::text FROM pg_class WHERE relname LIKE 'distlock%'
    UNION ALL SELECT proname::text FROM pg_proc WHERE proname LIKE 'distlock%'
"""


@pytest.fixture
def empty(postgres: Postgres, settings: Settings, namespace: str) -> Iterator[str]:
    """The alias of a database without tables, which the locks use."""
    postgres.ask("DROP DATABASE IF EXISTS without_tables")
    postgres.ask("CREATE DATABASE without_tables")
    alias = f"{postgres.url.rpartition('/')[0]}/without_tables"
    settings.DISTLOCK = {"default": {"HOSTS": f"database:{alias}", "NAMESPACE": namespace}}
    yield alias
    close_sessions()


@pytest.mark.usefixtures("empty")
def test_without_tables_the_message_says_migrate() -> None:
    with pytest.raises(LockUnavailable, match=r"has no tables for locks.* Run `manage.py migrate`"):
        zk_lock("key").acquire()


def test_the_migration_is_enough_and_can_be_reversed(
    empty: str, postgres: Postgres, django_db_blocker: DjangoDbBlocker
) -> None:
    with django_db_blocker.unblock():
        connection = connections[empty]
        MigrationExecutor(connection).migrate([("distlock", "0002_postgresql")])
        with zk_lock("key"):
            pass
        close_sessions()
        MigrationExecutor(connection).migrate([("distlock", None)])
        connection.close()
    assert postgres.ask(NAMES, database="without_tables") == []
