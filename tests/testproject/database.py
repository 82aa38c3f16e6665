"""A PostgreSQL database of the test project's own, with a gate in front of COMMIT."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
from psycopg import sql

from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.kit.services import Postgres

GATE = 604
# A deferred trigger runs within COMMIT: while the gate is shut, COMMIT has begun and is not done.
SCHEMA = f"""
CREATE TABLE testproject_counter (name text PRIMARY KEY, value integer NOT NULL DEFAULT 0);
CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER gate AFTER UPDATE ON testproject_counter
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pass_gate();
"""


class ProjectDatabase:
    """What the tests see of the database, through a connection that no transaction holds back."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._observer = self.connect()

    def connect(self) -> psycopg.Connection:
        options = {name: self.settings[name] for name in ("HOST", "PORT", "USER", "PASSWORD")}
        return psycopg.connect(
            dbname=self.settings["NAME"],
            autocommit=True,
            **{name.lower(): value for name, value in options.items() if value},
        )

    def environment(self, distlock: Mapping[str, Any]) -> dict[str, str]:
        """What a process of the test project needs to know."""
        databases = {"default": {**self.settings, "ATOMIC_REQUESTS": True}}
        return {
            "DJANGO_SETTINGS_MODULE": "tests.testproject.settings",
            "TESTPROJECT": json.dumps({"DATABASES": databases, "DISTLOCK": distlock}),
        }

    def make_counter(self) -> str:
        """Insert a counter and return its name."""
        name = f"c-{uuid4().hex[:8]}"
        self._observer.execute("INSERT INTO testproject_counter VALUES (%s, 0)", [name])
        return name

    def value(self, name: str) -> int:
        """The committed value of a counter."""
        row = self._observer.execute(
            "SELECT value FROM testproject_counter WHERE name = %s", [name]
        ).fetchone()
        assert row is not None
        return int(row[0])

    @contextmanager
    def gate_shut(self) -> Iterator[None]:
        """Let nobody finish a COMMIT."""
        self._observer.execute("SELECT pg_advisory_lock(%s)", [GATE])
        try:
            yield
        finally:
            self._observer.execute("SELECT pg_advisory_unlock(%s)", [GATE])

    def is_committing(self) -> bool:
        """Whether somebody stands at the gate."""
        return self._waiting("advisory")

    def await_commit_begun(self) -> None:
        """Wait until somebody stands at the gate."""
        eventually(self.is_committing, message="A COMMIT at the gate")

    def awaits_row(self) -> bool:
        """Whether somebody wants to write a row that another transaction has written."""
        return self._waiting("transactionid")

    def _waiting(self, event: str) -> bool:
        found = self._observer.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND wait_event = %s",
            [event],
        ).fetchone()
        return found is not None

    def close(self) -> None:
        self._observer.close()


@contextmanager
def project_database(postgres: Postgres) -> Iterator[ProjectDatabase]:
    """Create the database, and drop it at the end, whoever still uses it."""
    settings = postgres.settings()["default"]
    name = f"testproject_{uuid4().hex}"
    identifier = sql.Identifier(name)
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        try:
            database = ProjectDatabase({**settings, "NAME": name})
            try:
                with database.connect() as connection:
                    connection.execute(SCHEMA)
                yield database
            finally:
                database.close()
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))
