"""Settings of the role that would end statements, transactions or connections of locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connections
from pytest_django import Settings

from distlock import LockUnavailable, zk_lock
from distlock.conf import configuration
from distlock.session.registry import close_sessions
from tests.kit.services import Postgres
from tests.kit.tools import PATIENCE, MakeOwner, await_connection

#: A whole lock takes longer than each of these times.
HASTY = {
    "statement_timeout": "5ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "idle_session_timeout": "100ms",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
}


@pytest.fixture
def role(postgres: Postgres, use: Callable[..., None]) -> Iterator[str]:
    """A role that may do what locks need, of the database of both aliases."""
    hosts = postgres.new_database()
    database = hosts.rpartition("/")[2]
    postgres.ask("CREATE ROLE shop LOGIN")
    postgres.ask("GRANT ALL ON ALL TABLES IN SCHEMA public TO shop", database=database)
    postgres.ask("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO shop", database=database)
    use(hosts.replace("postgres@", "shop@"))
    yield "shop"
    close_sessions()
    postgres.ask("DROP OWNED BY shop", database=database)
    postgres.ask("DROP ROLE shop")


def test_settings_of_the_role_end_no_lock(
    role: str, postgres: Postgres, make_owner: MakeOwner
) -> None:
    known = {name for (name,) in postgres.ask("SELECT name FROM pg_settings")}
    for name, value in HASTY.items():
        if name in known:  # by their versions
            postgres.ask(f"ALTER ROLE {role} SET {name} = '{value}'")
    rivals = [make_owner() for _ in range(4)]
    locks = [zk_lock("key", using=name, timeout=PATIENCE) for name in ("default", "other")]
    sessions = {await_connection(name).id for name in ("default", "other")}

    def take(number: int) -> None:
        for _ in range(10):
            with locks[number % 2] as hold:
                hold.verify()

    for done in [owner.submit(take, number) for number, owner in enumerate(rivals)]:
        done.result(PATIENCE)
    assert {await_connection(name).id for name in ("default", "other")} == sessions


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ALTER ROLE shop SET default_transaction_read_only = on", "is a standby, or read-only"),
        ("ALTER ROLE shop CONNECTION LIMIT 0", "has no connection left"),
        ("ALTER ROLE shop NOLOGIN", "refuses the user or the password"),
        ("REVOKE ALL ON distlock_node FROM shop", "does not let this user do what locks need"),
    ],
)
@pytest.mark.usefixtures("role")
def test_a_refusal_says_what_to_do(postgres: Postgres, change: str, told: str) -> None:
    database = configuration().hosts.rpartition("/")[2]
    postgres.ask(change, database=database)
    with pytest.raises(LockUnavailable, match=told):
        zk_lock("key").acquire()


def test_it_assumes_the_role_that_django_does(
    role: str, postgres: Postgres, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``OPTIONS["assume_role"]``: the user itself may do nothing."""
    hosts = configuration().hosts.replace("shop@", "login@")
    postgres.ask("CREATE ROLE login LOGIN; GRANT shop TO login; ALTER ROLE login NOINHERIT")
    try:
        settings.DISTLOCK = {"default": {"HOSTS": hosts}}
        with pytest.raises(LockUnavailable, match="what locks need"):
            zk_lock("key").acquire()
        close_sessions()
        alias = hosts.removeprefix("database:")
        database = {**connections.settings[alias], "OPTIONS": {"assume_role": role}}
        monkeypatch.setitem(connections.settings, alias, database)
        with zk_lock("key") as hold:
            hold.verify()
    finally:
        close_sessions()
        postgres.ask("DROP ROLE login")
