from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock_chaos.server import ZooKeeper
from tests.kit.services import Postgres
from tests.servers.site import Site
from tests.testproject.database import ProjectDatabase, project_database


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[ProjectDatabase]:
    with project_database(postgres) as database:
        yield database


@pytest.fixture
def site(
    zookeeper: ZooKeeper, database: ProjectDatabase, namespace: str, tmp_path: Path
) -> Iterator[Site]:
    with Site(zookeeper, database, namespace, tmp_path) as site:
        yield site
