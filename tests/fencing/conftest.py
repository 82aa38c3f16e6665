"""Each test runs on SQLite and on PostgreSQL, with real transactions, as the default database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.fencing.models import MODELS, Stock
from tests.settings import Databases


@contextmanager
def databases(blocker: DjangoDbBlocker, **options: dict[str, Any]) -> Iterator[None]:
    """Let Django use these databases; it must have the alias "default"."""
    before = connections.settings

    with blocker.unblock():
        outside = connections["default"]  # stays open: it may be a database in memory
        del connections["default"]
        asyncio.run(sync_to_async(_forget)())
        connections.settings = connections.configure_settings(Databases(options))
        try:
            yield
        finally:
            _forget()
            asyncio.run(sync_to_async(_forget)())
            connections.settings = before
            connections["default"] = outside


def _forget() -> None:
    """Let this thread connect anew. asgiref's lives on, and has connections of its own."""
    for connection in connections.all(initialized_only=True):
        connection.close()
        del connections[connection.alias]


@contextmanager
def tables(alias: str) -> Iterator[None]:
    with connections[alias].schema_editor() as editor:
        for model in MODELS:
            editor.create_model(model)
    try:
        yield
    finally:
        with connections[alias].schema_editor() as editor:
            for model in MODELS:
                editor.delete_model(model)


def sqlite(path: Path) -> dict[str, Any]:
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}


@pytest.fixture(params=["sqlite", "postgresql"])
def vendor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def no_tables(
    request: pytest.FixtureRequest, vendor: str, tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """The default database without tables; "other" is one more."""
    default = sqlite(tmp_path / "default.sqlite3")
    if vendor == "postgresql":
        default = request.getfixturevalue("postgres").settings()["default"]
    with databases(django_db_blocker, default=default, other=sqlite(tmp_path / "other.sqlite3")):
        yield


@pytest.fixture
def database(no_tables: None) -> Iterator[None]:  # noqa: ARG001 - made before the tables
    """Both databases with the tables of `models`."""
    with tables("default"), tables("other"):
        yield


@pytest.fixture
def stock(database: None) -> Stock:  # noqa: ARG001 - made before the row
    """A row that a holder with the token 5 has written: ten lamps."""
    row = Stock(sku="lamp", quantity=10, note="new")
    row.save(fence=5)
    return row
