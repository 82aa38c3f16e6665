from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.site import Site
from tests.testproject.database import project_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlock_chaos.server import ZooKeeper
    from tests.kit.services import Postgres
    from tests.testproject.database import ProjectDatabase


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
