from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.kit.services import Postgres
from tests.testproject.database import ProjectDatabase, project_database

ALIAS = "project"


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[ProjectDatabase]:
    with project_database(postgres) as database:
        yield database


@pytest.fixture
def alias(
    database: ProjectDatabase,
    django_db_blocker: DjangoDbBlocker,
    django_db_setup: None,  # noqa: ARG001 - a "default" that is open before is another database
) -> Iterator[None]:
    """Django knows the database as an alias beside "default"."""
    settings = {ALIAS: database.settings, "default": {}}
    connections.settings[ALIAS] = connections.configure_settings(settings)[ALIAS]
    with django_db_blocker.unblock():
        try:
            yield
        finally:
            connections[ALIAS].close()
            del connections[ALIAS]
            del connections.settings[ALIAS]
