"""The test project under gunicorn: four workers of four threads, orderly ends and kills.

A process that ends in order closes its session: without that, a normal exit frees the lock as
slowly as SIGKILL does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from signal import SIGTERM

import pytest

from tests.kit.helpers import eventually
from tests.servers.site import Site, WebServer, end

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis")]

REQUESTS = 120
CLIENTS = 12


def increment_often(server: WebServer, view: str, name: str) -> set[int]:
    """Post many increments at the same time; the workers that served them."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(server.post, [f"/{view}/{name}/"] * REQUESTS))
    assert {status for status, _ in answers} == {200}
    return {said["pid"] for _, said in answers}


def test_preloaded_workers_lose_no_update_and_leave_the_lock_of_their_parent(site: Site) -> None:
    name = site.database.make_counter()
    with site.gunicorn("--preload", application="tests.testproject.preloaded") as server:
        parent = server.process.pid
        assert site.pid_of_holder("parent") == parent
        workers = increment_often(server, "dispatch", name)
        assert len(workers - {parent}) > 1
        assert site.database.value(name) == REQUESTS
        eventually(lambda: not site.nodes(f"counter:{name}"))
        assert site.pid_of_holder("parent") == parent
        end(workers.pop(), SIGTERM)  # in order, and so with the closing of its session
        assert site.pid_of_holder("parent") == parent
    assert not site.nodes("parent")


def test_sigterm_closes_the_sessions_so_that_the_locks_are_free_at_once(site: Site) -> None:
    with site.gunicorn(SESSION_TIMEOUT=20) as server:
        names = [site.database.make_counter() for _ in range(4)]
        for name in names:
            assert server.post(f"/hold/{name}/")[1]["held"]
        server.stop()
        assert [site.nodes(f"counter:{name}") for name in names] == [[]] * 4
