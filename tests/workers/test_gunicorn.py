"""A session reaper beside gunicorn's master, as docs/how-to/celery-workers.md has it."""

from __future__ import annotations

from signal import SIGKILL

import pytest

from tests.kit.helpers import eventually
from tests.kit.tools import within
from tests.servers.conftest import database, site
from tests.servers.site import Site, end

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis")]

__all__ = ["database", "site"]

SESSION_SECONDS = 20


def test_a_killed_worker_of_gunicorn_frees_its_locks_soon(site: Site) -> None:
    name = site.database.make_counter()
    config = "--config=python:tests.testproject.gunicorn_session_reaper"
    with site.gunicorn(config, SESSION_TIMEOUT=SESSION_SECONDS) as server:
        pid = server.post(f"/hold/{name}/")[1]["pid"]
        with within(SESSION_SECONDS / 2):
            end(pid, SIGKILL)
            status, said = server.post(f"/function/{name}/")
        assert status == 200
        assert said["pid"] != pid
        eventually(lambda: f"Process {pid} died" in server.log)
        server.stop()
        assert server.log.count("died") == 1
