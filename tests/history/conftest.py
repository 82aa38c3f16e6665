"""Each test of the recorder runs on SQLite and on PostgreSQL, as the default database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connections
from django.db.models import Sum
from pytest_django import DjangoDbBlocker

from distlock import history as recorder
from distlock.history import Recorder
from distlock.models import LockEvent, LockMinute
from tests.fencing.conftest import databases, sqlite
from tests.kit.losses import SetOptions
from tests.kit.services import Postgres
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    Options = dict[str, Any]


@pytest.fixture(params=["sqlite", "postgresql"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Options]:
    """The settings of a database without tables."""
    if request.param == "sqlite":
        yield sqlite(tmp_path / "history.sqlite3")
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = f"history_{uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield {**server.settings()["default"], "NAME": name}
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def use(options: Options, django_db_blocker: DjangoDbBlocker) -> Callable[[Options], Any]:
    """Returns a block in which these are the options of the default database, with the tables."""

    @contextmanager
    def using(_options: Options = options) -> Iterator[None]:
        with databases(django_db_blocker, default=_options):
            create_table()
            yield

    return using


def create_table() -> None:
    with connections["default"].schema_editor() as editor:
        editor.create_model(LockEvent)
        editor.create_model(LockMinute)


def drop_table() -> None:
    with connections["default"].schema_editor() as editor:
        editor.delete_model(LockEvent)
        editor.delete_model(LockMinute)


@pytest.fixture
def table(use: Callable[[], Any]) -> Iterator[None]:
    with use():
        yield


@pytest.fixture
def history(set_options: SetOptions) -> SetOptions:
    """Sets options of an alias; the alias "default" keeps 1000 events."""
    set_options(HISTORY=1000)
    return set_options


@pytest.fixture
def own_recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A new recorder of this process, which records as outside of a test run."""
    monkeypatch.delattr("django.test.utils._TestState.saved_data")
    one = Recorder()
    monkeypatch.setattr(recorder, "_recorder", one)
    yield one
    assert one.flush(PATIENCE)


def keys() -> list[str]:
    """The keys of the rows, in the order of writing."""
    return list(LockEvent.objects.order_by("id").values_list("key", flat=True))


def counted(kind: str) -> int:
    """How many of a kind have been counted in the database."""
    found = LockMinute.objects.filter(kind=kind).aggregate(sum=Sum("count"))
    return found["sum"] or 0
