"""Redis and a real ZooKeeper get the same requests and give the same answers.

Hypothesis chooses the requests, on two sessions of each: every answer, stat, error and watch event
is compared after each one, and the whole tree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from distlock.engine.errors import refusal
from distlock.engine.protocol import CONTAINER, EPHEMERAL, SEQUENTIAL, Requests
from distlock.engine.redis import requests as redis_requests
from distlock_chaos.fixtures import _run
from distlock_chaos.server import ZooKeeper
from tests.kit.services import Redis
from tests.testing.alike import Compared, compare, data, names, places, sessions, versions
from tests.testing.sides import World


@dataclasses.dataclass(frozen=True)
class Step:
    """A request, said so that each side can make it."""

    kind: str
    place: int
    name: str
    data: bytes
    version: int

    def make(self, make: Requests, path: str) -> Any:
        """Return the request about the node `path`, or one below it."""
        below = f"{path}/{self.name}"
        requests: dict[str, Callable[[], Any]] = {
            "contender": lambda: make.node(f"{below}-lock-", self.data, EPHEMERAL | SEQUENTIAL),
            "ephemeral": lambda: make.node(below, self.data, EPHEMERAL),
            "persistent": lambda: make.node(below, self.data),
            "numbered": lambda: make.node(f"{below}-", self.data, SEQUENTIAL),
            "container": lambda: make.node(below, flags=CONTAINER),
            "writing": lambda: make.writing(path, self.data, self.version),
            # The root of the test stays.
            "deletion": lambda: make.deletion(path if path.count("/") > 1 else below, self.version),
            "presence": lambda: make.presence(path),
        }
        return requests[self.kind]()


CREATES = ["contender", "ephemeral", "persistent", "numbered", "container"]
#: The steps whose answers kazoo can read.
STEPS = ["persistent", "writing", "deletion", "presence"]


def steps_of(kinds: list[str]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.sampled_from(kinds), places, names, data, versions)


class Alike(Compared):
    hosts = ""
    redis: Redis

    @initialize()
    def begin(self) -> None:
        root = f"/alike-{uuid4()}"
        self.worlds = [
            World(self.hosts, root),
            World(self.redis.new_database(), root),
        ]
        self.count = 0
        self.begin_at(root)
        self.both(0, lambda make: make.node(root, b""))

    def both(self, session: int, request: Callable[[Requests], Any]) -> Any:
        answers = []
        for world in self.worlds:
            answers.append(world.normal(world.sides[session].ask(request)))
            if isinstance(answers[-1], list) and all(isinstance(n, str) for n in answers[-1]):
                answers[-1].sort()
        assert answers[0] == answers[1]
        return answers[0]

    @rule(session=sessions, step=steps_of(CREATES))
    def create(self, session: int, step: Step) -> None:
        self.both(session, lambda make: step.make(make, self.path(step.place)))

    @rule(session=sessions, step=steps_of(STEPS))
    def change(self, session: int, step: Step) -> None:
        path = self.path(step.place)
        if step.kind in ("writing", "deletion"):
            self.both(session, lambda make: step.make(make, path))
            self.gone = path if path != self.there[0] else self.gone

    @rule(session=sessions, steps=st.lists(steps_of(STEPS), min_size=1, max_size=4))
    def transact(self, session: int, steps: list[Step]) -> None:
        self.both(
            session,
            lambda make: make.multi([step.make(make, self.path(step.place)) for step in steps]),
        )

    @rule(session=sessions, place=places, children=st.booleans())
    def watch(self, session: int, place: int, children: bool) -> None:
        path = self.path(place)
        self.count += 1
        watch = f"watch {self.count}"
        answers = []
        for world in self.worlds:
            side = world.sides[session]
            request = side.client.listing if children else side.client.reading
            answer = world.normal(side.ask_all([request(path, side.hear(watch))])[0])
            answers.append(sorted(answer) if isinstance(answer, list) else answer)
        assert answers[0] == answers[1]

    @rule(session=sessions, place=places, children=st.booleans())
    def unwatch(self, session: int, place: int, children: bool) -> None:
        path = self.path(place)
        self.both(session, lambda make: make.unwatching(path, children=children))
        for world in self.worlds:
            world.sides[session].client.forget_watchers(path, children=children)

    @rule(session=sessions)
    def prove(self, session: int) -> None:
        for world in self.worlds:
            answer = world.sides[session].ask(lambda make: make.proof("/", by_write=True))
            assert not isinstance(answer, Exception)
            assert refusal(answer) is None


@pytest.fixture(scope="module")
def lasting_containers() -> Iterator[ZooKeeper]:
    """A server that removes no empty containers while a test looks."""
    yield from _run(jvm=["-Dznode.container.checkIntervalMs=3600000"])


@pytest.mark.deep
def test_redis_and_a_real_server_are_alike(
    lasting_containers: ZooKeeper, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_requests, "EMPTY_MS", 3_600_000)
    compare(type("Machine", (Alike,), {"hosts": lasting_containers.hosts, "redis": redis}))
