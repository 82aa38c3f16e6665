"""The tree in memory and a real server get the same requests and give the same answers.

Hypothesis chooses the requests, on two sessions of each: every answer, stat, error and watch event
is compared after each one, and the whole tree.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from kazoo.exceptions import EXCEPTIONS, APIError

from distlock.engine.zookeeper.client import Client
from distlock.testing import MemoryTree
from distlock.testing.fixtures import _run
from distlock.testing.memory_client import MemoryClient
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, REAP_SECONDS
from tests.testing.alike import Compared, compare, data, names, places, sessions, versions
from tests.testing.sides import Side, World, configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.engine.zookeeper.requests import Requests
    from distlock.testing.server import ZooKeeper


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
            "contender": lambda: make.contender(f"{below}-lock-", self.data),
            "ephemeral": lambda: make.ephemeral(below, self.data),
            "persistent": lambda: make.persistent(below, self.data),
            "numbered": lambda: make.persistent(f"{below}-", self.data, sequential=True),
            "container": lambda: make.container(below),
            "creation": lambda: make.creation(below),
            "writing": lambda: make.writing(path, self.data, self.version),
            # What all of it is under stays.
            "deletion": lambda: make.deletion(path if path.count("/") > 1 else below, self.version),
            "presence": lambda: make.presence(path),
        }
        return requests[self.kind]()


CREATES = ["contender", "ephemeral", "persistent", "numbered", "container"]
#: What kazoo can read of the answer to a transaction.
STEPS = ["creation", "writing", "deletion", "presence"]


def steps_of(kinds: list[str]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.sampled_from(kinds), places, names, data, versions)


class Alike(Compared):
    hosts = ""

    @initialize()
    def begin(self) -> None:
        root = f"/alike-{uuid4()}"
        self.worlds = [World(Client, self.hosts, root), self.other(root)]
        self.count = 0
        self.begin_at(root)
        self.both(0, lambda make: make.persistent(root, b""))

    def other(self, root: str) -> World:
        return World(self.in_memory(MemoryTree()), self.hosts, root)

    @staticmethod
    def in_memory(tree: MemoryTree) -> Callable[..., MemoryClient]:
        tree.reap_after = 3600.0
        return partial(MemoryClient, tree=tree)

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

    @rule(session=sessions, place=places)
    def sync(self, session: int, place: int) -> None:
        self.both(session, lambda make: make.syncing("/"))


@pytest.fixture(scope="module")
def lasting_containers() -> Iterator[ZooKeeper]:
    """A server that removes no empty containers while a test looks."""
    yield from _run(jvm=["-Dznode.container.checkIntervalMs=3600000"])


def test_memory_and_a_real_server_are_alike(lasting_containers: ZooKeeper) -> None:
    machine = type("Machine", (Alike,), {"hosts": lasting_containers.hosts})
    compare(machine)


def test_each_kind_of_request_and_event_is_alike(lasting_containers: ZooKeeper) -> None:
    """What chance may leave out."""
    both = type("Machine", (Alike,), {"hosts": lasting_containers.hosts})()
    both.begin()

    def step(kind: str, place: int, version: int = -1) -> Step:
        return Step(kind, place, "a", b"x", version)

    def look(*steps: None) -> None:
        both.they_are_alike()

    look()
    try:
        for parent in range(2):  # a node, and one under it: the places are 0, 1, 2
            look(both.create(0, step("container", parent)))
        look(both.create(0, step("container", 0)))  # is there already
        for place in range(3):
            for children in (False, True):
                look(both.watch(1, place, children=children))
        look(both.change(0, step("writing", 1, version=7)))
        look(both.change(0, step("writing", 1, version=0)))
        look(both.change(0, step("deletion", 1)))  # is not empty
        look(both.change(0, step("deletion", 2, version=7)))
        look(both.change(0, step("deletion", 2)))
        look(both.create(0, step("ephemeral", 1)))
        look(both.create(0, step("persistent", 2)))  # under an ephemeral node
        look(both.watch(1, 1, children=True))
        look(both.unwatch(1, 1, children=True))
        look(both.unwatch(1, 1, children=True))  # is none
        for _ in range(2):
            look(both.create(0, step("contender", 1)))
        look(both.watch(1, 2, children=False))
        look(both.transact(0, [step("creation", 0), step("creation", 1)]))
        look(both.transact(0, [step("writing", 0), step("deletion", 2), step("writing", 6)]))
        look(both.transact(0, [step("writing", 0), step("deletion", 2), step("presence", 1)]))
        look(both.watch(1, 1, children=True))
        look(both.lose_the_connection(1))
        look(both.unwatch(1, 1, children=True))  # went with the connection
        look(both.watch(1, 1, children=True))
        look(both.expire(0))
        assert len(both.there) == 2  # the ephemeral nodes have gone
    finally:
        both.teardown()


def test_containers_go_when_they_have_had_a_child_and_not_before(zookeeper: ZooKeeper) -> None:
    root = f"/reaped-{uuid4()}"
    tree = MemoryTree()
    tree.reap_after = REAP_SECONDS
    for make in (Client, partial(MemoryClient, tree=tree)):
        side = Side(make, configuration(zookeeper.hosts))
        used, new = (side.client.container(f"{root}/{name}") for name in ("used", "new"))
        child = f"{root}/used/child"
        side.ask_all([side.client.persistent(root, b""), used, new])
        side.ask_all([side.client.persistent(child, b""), side.client.deletion(child)])
        await_names(side, root, ["new"])
        side.client.say_goodbye(1)


def await_names(side: Side, path: str, expected: list[str]) -> None:
    eventually(lambda: side.ask(lambda make: make.listing(path)) == expected, PATIENCE)


@pytest.mark.parametrize("in_memory", [False, True])
def test_an_error_that_an_old_kazoo_does_not_know_is_an_api_error(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    no_watcher = -121
    monkeypatch.delitem(EXCEPTIONS, no_watcher, raising=False)
    make = partial(MemoryClient, tree=MemoryTree()) if in_memory else Client
    side = Side(make, configuration(zookeeper.hosts))
    try:
        assert type(side.ask(lambda make: make.unwatching("/"))) is APIError
    finally:
        side.client.say_goodbye(1)
