"""A locked view under ``ATOMIC_REQUESTS`` commits before it releases (promise 9).

A decorator that locks around the view releases before COMMIT, and updates are lost. Two real
processes serve one request each through Django's handler. A gate in the database stops the first
one in the middle of COMMIT, and the second one gets as far as its lock lets it before the gate
opens. So the outcome is no matter of luck, neither the loss with a plain decorator nor its absence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from distlock_chaos.server import ZooKeeper
from tests.kit.engines import tree_at
from tests.kit.helpers import eventually
from tests.testproject.database import ProjectDatabase
from tests.testproject.driver import Driver, drive

pytestmark = pytest.mark.engines("zookeeper", "redis")

LOCKED = [
    "function",
    "below-another-decorator",
    "above-another-decorator",
    "two-locks",
    "dispatch",
    "dispatch-of-several",
    "own-dispatch",
    "generic",
    "one-url-of-two",
]
EXEMPT = ["exempt-above", "exempt-below", "exempt-url-of-two"]


class Site(NamedTuple):
    """Two processes of one site, and its parts seen from outside."""

    first: Driver
    second: Driver
    database: ProjectDatabase
    zookeeper: KazooClient
    namespace: str

    def in_line(self, name: str, kind: str = "counter") -> int:
        """How many hold or await the lock of a counter."""
        try:
            return len(self.zookeeper.get_children(f"{self.namespace}/{kind}:{name}"))
        except NoNodeError:
            return 0

    def second_is_waiting(self, name: str) -> bool:
        """Whether the second process waits: in line, or inside and for the row."""
        in_line = self.in_line(name) == 2 or self.in_line(name, "till") == 2
        return in_line or self.database.awaits_row()


@pytest.fixture(scope="module")
def site(zookeeper: ZooKeeper, database: ProjectDatabase) -> Iterator[Site]:
    namespace = f"/t-{uuid4()}"
    alias = {"HOSTS": zookeeper.hosts, "NAMESPACE": namespace}
    environment = database.environment(
        {"default": alias, "careless": {**alias, "IN_TRANSACTION": "allow"}}
    )
    with ExitStack() as stack:
        client = stack.enter_context(tree_at(zookeeper.hosts, namespace)).client
        first = stack.enter_context(drive(environment))
        second = stack.enter_context(drive(environment))
        yield Site(first, second, database, client, namespace)


def increment_twice(site: Site, view: str) -> tuple[int, list[int]]:
    """Two increments, the second while the first is in COMMIT: the sum, and what each one saw."""
    name = site.database.make_counter()
    with site.database.gate_shut():
        site.first.post(f"/{view}/{name}/")
        site.database.await_commit_begun()
        site.second.post(f"/{view}/{name}/")
        eventually(lambda: site.second_is_waiting(name))
    answers = [site.first.answer(), site.second.answer()]
    assert [answer["status"] for answer in answers] == [200, 200]
    eventually(lambda: site.in_line(name) == 0)
    return site.database.value(name), [answer["seen"] for answer in answers]


@pytest.mark.parametrize("view", ["unlocked", "naive"])
def test_a_plain_decorator_loses_the_update_as_no_lock_does(site: Site, view: str) -> None:
    assert increment_twice(site, view) == (1, [0, 0])


@pytest.mark.parametrize("view", LOCKED + EXEMPT)
def test_zk_locked_loses_none(site: Site, view: str) -> None:
    assert increment_twice(site, view) == (2, [0, 1])


@pytest.mark.parametrize("view", [*LOCKED, "naive", "unlocked"])
def test_the_view_runs_in_the_transaction_that_the_site_asked_for(site: Site, view: str) -> None:
    site.first.post(f"/{view}/{site.database.make_counter()}/")
    assert site.first.answer()["in_transaction"]


@pytest.mark.parametrize("view", EXEMPT)
def test_an_exempt_view_stays_exempt(site: Site, view: str) -> None:
    site.first.post(f"/{view}/{site.database.make_counter()}/")
    assert not site.first.answer()["in_transaction"]


@pytest.mark.parametrize("view", ["async-function", "async-dispatch"])
def test_an_async_view_is_refused_as_without_a_lock(site: Site, view: str) -> None:
    """Django has no transactions in async code, and says so rather than leave one out."""
    site.first.post(f"/{view}/{site.database.make_counter()}/")
    assert site.first.answer() == {"status": 500}


@pytest.mark.parametrize("view", ["exempt-async-function", "exempt-async-dispatch"])
def test_an_exempt_async_view_is_served(site: Site, view: str) -> None:
    site.first.post(f"/{view}/{site.database.make_counter()}/")
    assert site.first.answer() == {"status": 200, "held": True}


def test_a_view_that_raises_is_rolled_back_and_releases(site: Site) -> None:
    name = site.database.make_counter()
    site.first.post(f"/fails/{name}/")
    assert site.first.answer()["status"] == 500
    assert site.database.value(name) == 0
    eventually(lambda: site.in_line(name) == 0)
