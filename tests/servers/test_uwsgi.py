"""The test project under real uWSGI, which by default forks workers without Python's fork hooks."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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

        def hold_in_each(pool: ThreadPoolExecutor) -> bool:
            """On one core, one worker answers all that come one by one."""
            own = [site.database.make_counter() for _ in range(CLIENTS)]
            answers = pool.map(server.post, [f"/hold/{counter}/" for counter in own])
            for counter, (_, said) in zip(own, list(answers), strict=True):
                (node,) = site.nodes(f"counter:{counter}")
                assert site.pid_of_holder(f"counter:{counter}") == said["pid"]
                workers.setdefault(said["pid"], node)
            return len(workers) == 3

        with ThreadPoolExecutor(CLIENTS) as pool:
            each = "each of the workers has answered"
            eventually(partial(hold_in_each, pool), PATIENCE, each)
            assert parent not in workers
            assert len({node[:STEM] for node in workers.values()}) == 3  # a name of each
            said = list(pool.map(server.post, [f"/function/{name}/"] * REQUESTS))
        assert {status for status, _ in said} == {200}
        assert site.database.value(name) == REQUESTS
        assert site.pid_of_holder("parent") == parent
