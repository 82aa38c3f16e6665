"""The test project under real uWSGI, which by default forks workers without Python's fork hooks."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distlock.keys.znodes import STEM
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE
from tests.servers.site import Site

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis")]

REQUESTS = 60
CLIENTS = 12
UWSGI = str(Path(sys.executable).with_name("uwsgi"))


@pytest.mark.parametrize("hooks", [(), ("--py-call-uwsgi-fork-hooks",)], ids=["default", "hooks"])
def test_workers_have_sessions_names_and_nodes_of_their_own(
    site: Site, hooks: tuple[str, ...]
) -> None:
    """The master has used a lock, and holds another, before it forks them."""
    name = site.database.make_counter()
    with site.run(
        UWSGI,
        "--master",
        "--enable-threads",
        "--die-on-term",
        "--workers=3",
        "--threads=2",
        "--http-socket=127.0.0.1:0",
        "--module=tests.testproject.preloaded",
        *hooks,
        environment=site.environment(),
        listening=r"bound to TCP address 127\.0\.0\.1:(\d+)",
    ) as server:
        parent = server.process.pid
        assert site.pid_of_holder("parent") == parent
        workers: dict[int, str] = {}

        def hold_once_in_each() -> bool:
            own = site.database.make_counter()
            pid = server.post(f"/hold/{own}/")[1]["pid"]
            (node,) = site.nodes(f"counter:{own}")
            assert site.pid_of_holder(f"counter:{own}") == pid
            workers.setdefault(pid, node)
            return len(workers) == 3

        eventually(hold_once_in_each, PATIENCE, "each of the workers has answered")
        assert parent not in workers
        assert len({node[:STEM] for node in workers.values()}) == 3  # the first names of each
        with ThreadPoolExecutor(CLIENTS) as pool:
            said = list(pool.map(server.post, [f"/function/{name}/"] * REQUESTS))
        assert {status for status, _ in said} == {200}
        assert site.database.value(name) == REQUESTS
        assert site.pid_of_holder("parent") == parent
