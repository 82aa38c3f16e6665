from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.testproject.database import project_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.services import Postgres
    from tests.testproject.database import ProjectDatabase


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[ProjectDatabase]:
    with project_database(postgres) as database:
        yield database
