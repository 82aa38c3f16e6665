from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from . import services
from .helpers import alive, eventually, spawn_python
from .services import Postgres, PostgresNotInstalled

if TYPE_CHECKING:
    from .services import Postgres as PostgresServer


def test_the_cluster_answers_and_its_settings_name_it(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url) as connection:
        row = connection.execute("SELECT current_database(), inet_server_port()").fetchone()
    settings = postgres.settings()["default"]
    assert row is not None
    assert settings["NAME"] == row[0]
    assert settings["ENGINE"] == "django.db.backends.postgresql"
    if "DATABASE_URL" not in os.environ:
        assert (settings["HOST"], settings["PORT"]) == ("127.0.0.1", str(row[1]))


def test_the_cluster_ends_with_a_parent_that_is_killed(postgres: PostgresServer) -> None:
    del postgres  # It skips this test where there is no PostgreSQL.
    code = (
        "import time; from tests.kit.services import Postgres; server = Postgres().start()\n"
        "print(server._process.pid, server._folder); time.sleep(60)"
    )
    with spawn_python(code, environment={"DATABASE_URL": ""}) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert alive(int(pid))
        parent.kill()
        eventually(lambda: not alive(int(pid)))
        eventually(lambda: not Path(folder).exists())


def test_database_url_names_a_server_that_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://me:p%40ss@db.example:5433/shop")
    with Postgres() as server:
        pass
    assert server.settings() == {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "shop",
            "USER": "me",
            "PASSWORD": "p@ss",
            "HOST": "db.example",
            "PORT": "5433",
        }
    }


def test_without_postgresql_the_message_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise PostgresNotInstalled("PostgreSQL was not found.")

    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(services, "_programs", missing)
    with pytest.raises(PostgresNotInstalled):
        Postgres().start()
