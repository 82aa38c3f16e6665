"""The embedded server and a real one get the same requests and give the same answers.

Hypothesis chooses the requests, on two sessions of each: every answer, stat, error and watch event
is compared after each one, and the whole tree. The first session has given a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from kazoo.exceptions import KazooException
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions, make_digest_acl

from distlock.embedded.server import EmbeddedZooKeeper
from distlock_chaos.fixtures import _run
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import raw_client
from tests.testing.alike import Compared, compare, data, names, places, sessions, versions
from tests.testing.sides import Side, World

if TYPE_CHECKING:
    Ask = Callable[[Callable[[Any], None] | None], Any]

AUTH = ("digest", "user:secret")
#: All of them let the first session do everything: it reads the tree after each step.
_USER = make_digest_acl("user", "secret", all=True)
ACLS = [
    OPEN_ACL_UNSAFE,
    OPEN_ACL_UNSAFE,
    [_USER],
    [_USER, ACL(Permissions.READ, Id("world", "anyone"))],
    [_USER, ACL(Permissions.CREATE | Permissions.DELETE, Id("world", "anyone"))],
    [_USER, _USER, ACL(Permissions.ADMIN, Id("world", "anyone"))],
    [_USER, ACL(Permissions.READ | Permissions.WRITE, Id("ip", "127.0.0.1"))],
    [_USER, ACL(Permissions.ALL, Id("ip", "127.1.2.3/8"))],
    [_USER, ACL(Permissions.ALL, Id("ip", "127.0.0.2/31"))],
]
REFUSED_ACLS = [
    [],
    [ACL(Permissions.ALL, Id("unheard-of", "somebody"))],
    [ACL(Permissions.ALL, Id("world", "somebody"))],
    [ACL(Permissions.ALL, Id("digest", "user"))],
    [ACL(Permissions.ALL, Id("ip", "127.0.1"))],
    [ACL(Permissions.ALL, Id("ip", "127.0.0.1/33"))],
]
AUTH_ACL = [_USER, ACL(Permissions.ALL, Id("auth", ""))]


class CreateContainer(kazoo.Create2):  # type: ignore[misc]
    type = 19


class CreateTTL(kazoo.Create2):  # type: ignore[misc]
    """A create whose last field is the time to live; no server knows it without an option."""

    type = 21

    def serialize(self) -> bytes:
        return b"".join([super().serialize(), kazoo.long_struct.pack(1)])


class RemoveWatches(tuple[str, int]):
    """A request to remove the watches of one kind on a path."""

    type = 18
    __slots__ = ()

    def serialize(self) -> bytes:
        return b"".join([kazoo.write_string(self[0]), kazoo.int_struct.pack(self[1])])

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        return True


class AddWatch(RemoveWatches):
    """A request to watch a path for good: 0 for the node, 1 with all nodes below."""

    type = 106
    __slots__ = ()


acls = st.sampled_from([*ACLS, *ACLS, *REFUSED_ACLS, AUTH_ACL])
flags = st.sampled_from([0, 0, 1, 2, 3, 4, 7, -1])


class Alike(Compared):
    hosts: list[str]
    most_breaks = 2

    @initialize()
    def begin(self) -> None:
        self.root = f"/alike-{uuid4()}"
        self.worlds = [World(hosts, self.root, auth=(AUTH,)) for hosts in self.hosts]
        for world in self.worlds:
            for side in world.sides:
                record_events(side)
        self.begin_at(self.root)
        #: The paths that the second session watches: once, and for good.
        self.once: set[str] = set()
        self.for_good: set[str] = set()
        self.both(0, lambda _: kazoo.Create(self.root, b"", OPEN_ACL_UNSAFE, 0))

    def both(self, session: int, ask: Ask, *, in_order: bool = True) -> None:
        """Ask both servers, and compare.

        :param in_order: False if the names in the answer may come in any order
        """
        first, second = (self.answer(world, session, ask) for world in self.worlds)
        assert first == second if in_order else _sorted(first) == _sorted(second)

    def answer(self, world: World, session: int, ask: Ask) -> Any:
        side = world.sides[session]

        def heard(event: Any) -> None:
            side.events.append((event.type, event.path))

        return world.normal(side.ask(lambda _: ask(heard)))

    @rule(
        session=sessions,
        place=places,
        name=names,
        data=st.none() | data,
        acl=acls,
        flags=flags,
        kind=st.sampled_from([kazoo.Create, kazoo.Create2]),
    )
    def create(  # noqa: PLR0917 - hypothesis names them
        self,
        session: int,
        place: int,
        name: str,
        data: bytes | None,
        acl: Any,
        flags: int,
        kind: Any,
    ) -> None:
        path = f"{self.path(place)}/{name}"
        self.both(session, lambda _: kind(path, data, acl, flags))

    @rule(session=sessions, place=places, name=names, flags=st.sampled_from([5, 6]))
    def create_with_ttl(self, session: int, place: int, name: str, flags: int) -> None:
        path = f"{self.path(place)}/{name}"
        self.both(session, lambda _: CreateTTL(path, b"", OPEN_ACL_UNSAFE, flags))

    @rule(session=sessions, place=places, name=names)
    def create_container(self, session: int, place: int, name: str) -> None:
        path = f"{self.path(place)}/{name}"
        self.both(session, lambda _: CreateContainer(path, b"", OPEN_ACL_UNSAFE, 4))

    @rule(session=sessions, place=places, version=versions)
    def delete(self, session: int, place: int, version: int) -> None:
        path = self.path(place)
        if path != self.root:
            self.both(session, lambda _: kazoo.Delete(path, version))
            self.gone = path

    @rule(session=sessions, place=places, data=st.none() | data, version=versions)
    def set_data(self, session: int, place: int, data: bytes | None, version: int) -> None:
        self.both(session, lambda _: kazoo.SetData(self.path(place), data, version))

    @rule(session=sessions, place=places, acl=acls, version=versions)
    def set_acl(self, session: int, place: int, acl: Any, version: int) -> None:
        if self.path(place) != self.root:
            self.both(session, lambda _: kazoo.SetACL(self.path(place), acl, version))

    @rule(
        session=sessions,
        place=places,
        kind=st.sampled_from([kazoo.Exists, kazoo.GetData, kazoo.GetChildren, kazoo.GetChildren2]),
        watch=st.booleans(),
    )
    def read(self, session: int, place: int, kind: Any, watch: bool) -> None:
        path = self.path(place)
        if session and watch:
            watch = path not in self.for_good
            self.once |= {path} if watch else set()
        self.both(session, lambda heard: kind(path, heard if watch else None), in_order=False)

    @rule(session=sessions, place=places)
    def get_acl(self, session: int, place: int) -> None:
        self.both(session, lambda _: kazoo.GetACL(self.path(place)))

    @rule(session=sessions, place=places)
    def sync(self, session: int, place: int) -> None:
        self.both(session, lambda _: kazoo.Sync(self.path(place)))

    @rule(
        session=sessions,
        steps=st.lists(
            st.tuples(st.integers(0, 3), places, names, versions, acls), min_size=1, max_size=4
        ),
    )
    def transact(self, session: int, steps: list[Any]) -> None:
        def step(kind: int, place: int, name: str, version: int, acl: Any) -> Any:
            path = self.path(place)
            below = f"{path}/{name}"
            return [
                kazoo.Create(below, b"", acl, 0),
                kazoo.SetData(path, b"t", version),
                kazoo.Delete(path if path != self.root else below, version),
                kazoo.CheckVersion(path, version),
            ][kind]

        self.both(session, lambda _: kazoo.Transaction([step(*one) for one in steps]))

    @rule(place=places, mode=st.sampled_from([0, 1, 1, 2]))
    def watch_for_good(self, place: int, mode: int) -> None:
        """Let the second session do so; it watches a path in one way only.

        ZooKeeper 3.8 and 3.9 differ where it does so in two.
        """
        path = self.path(place)
        if path not in self.once | self.for_good:
            self.for_good.add(path)
            self.both(1, lambda _: AddWatch((path, mode)))

    @rule(session=sessions, place=places, number=st.sampled_from([1, 2, 3]))
    def unwatch(self, session: int, place: int, number: int) -> None:
        path = self.path(place)
        if session and path in self.for_good:
            number = 3
        if session and number == 3:
            self.once.discard(path)
            self.for_good.discard(path)
        self.both(session, lambda _: RemoveWatches((path, number)))
        for world in self.worlds:
            for children in {1: [True], 2: [False], 3: [True, False]}[number]:
                world.sides[session].client.forget_watchers(path, children=children)


def record_events(side: Side) -> None:
    """Note the watch events as they come, also those of which kazoo knows no watcher."""
    pass_on = side.client.pass_on

    def note(event: bytes, offset: int) -> None:
        told, _ = kazoo.Watch.deserialize(event, offset)
        side.events.append((f"event {told.type}", told.path))
        pass_on(event, offset)

    side.client.pass_on = note


def _sorted(answer: Any) -> Any:
    """Sort the names of children, alone or before a stat."""
    if isinstance(answer, tuple):
        return tuple(map(_sorted, answer))
    return sorted(answer) if isinstance(answer, list) else answer


@pytest.fixture(scope="module")
def real() -> Iterator[ZooKeeper]:
    """A server that removes no empty containers while a test looks."""
    yield from _run(jvm=["-Dznode.container.checkIntervalMs=3600000"])


@pytest.mark.deep
def test_the_embedded_and_a_real_server_are_alike(
    real: ZooKeeper, embedded: EmbeddedZooKeeper
) -> None:
    embedded.tree.reap_after = 3600.0
    machine = type("Machine", (Alike,), {"hosts": [real.hosts, embedded.hosts]})
    compare(machine)


def test_each_kind_of_request_and_event_is_alike(
    real: ZooKeeper, embedded: EmbeddedZooKeeper
) -> None:
    """What chance may leave out. The places are 0 for the root and 1 for the only other node."""
    embedded.tree.reap_after = 3600.0
    both = type("Machine", (Alike,), {"hosts": [real.hosts, embedded.hosts]})()
    both.begin()

    def look(*steps: None) -> None:
        both.they_are_alike()

    def make(acl: Any = OPEN_ACL_UNSAFE, flags: int = 0, session: int = 0) -> None:
        look(both.create(session, 0, "a", b"x", acl, flags, kazoo.Create2))

    def read(kind: Any, place: int = 1, *, session: int = 1, watch: bool = True) -> None:
        look(both.read(session, place, kind, watch))

    look()
    reads = [kazoo.Exists, kazoo.GetData, kazoo.GetChildren, kazoo.GetChildren2]
    try:
        for kind in reads:  # each watch is told that the node goes
            make()
            read(kind)
            look(both.delete(0, 1, -1))
        both.gone = f"{both.root}/a"
        read(kazoo.Exists, 6)  # and this one, that it comes
        read(kazoo.GetChildren, 0)
        make()
        for mode in (0, 1, 2):
            look(both.unwatch(1, 1, 3))
            look(both.unwatch(1, 0, 3))
            look(both.watch_for_good(1, mode))
            look(both.watch_for_good(0, mode))
            for _ in range(2):
                look(both.set_data(0, 1, b"y", -1))
                look(both.create(0, 1, "b", b"", OPEN_ACL_UNSAFE, 0, kazoo.Create))
                look(both.set_data(0, 2, b"y", -1))
                look(both.delete(0, 2, -1))
                look(both.delete(0, 1, -1))
                make()
        look(both.unwatch(1, 1, 3))
        look(both.unwatch(1, 0, 3))
        look(both.set_data(0, 1, b"y", -1))
        for number in (1, 2, 3, 3):
            read(kazoo.GetData)
            read(kazoo.GetChildren)
            look(both.unwatch(1, 1, number))
            look(both.unwatch(1, 1, number))
        read(kazoo.GetData)
        look(both.set_data(0, 1, None, -1))
        read(kazoo.GetData)
        look(both.set_data(0, 1, b"y", 7))
        look(both.set_data(0, 1, b"y", 0))
        for acl in ACLS:
            look(both.set_acl(0, 1, acl, -1))
            look(both.get_acl(1, 1))
            read(kazoo.GetData)
            look(both.create(1, 1, "b", b"", OPEN_ACL_UNSAFE, 2, kazoo.Create))
            look(both.set_data(1, 1, b"z", -1))
            look(both.set_acl(1, 1, OPEN_ACL_UNSAFE, 3))
        for acl in REFUSED_ACLS:
            look(both.set_acl(0, 1, acl, -1))
        look(both.set_acl(0, 1, AUTH_ACL, -1))
        look(both.set_acl(1, 1, AUTH_ACL, -1))
        both.teardown()
        both.begin()
        make(flags=1)
        look(both.create(0, 1, "b", b"", OPEN_ACL_UNSAFE, 0, kazoo.Create))  # under an ephemeral
        look(
            both.transact(0, [(1, 0, "a", -1, None), (2, 1, "a", -1, None), (3, 6, "a", -1, None)])
        )
        look(
            both.transact(
                0, [(0, 0, "b", -1, OPEN_ACL_UNSAFE), (1, 0, "a", -1, None), (3, 0, "a", -1, None)]
            )
        )
        read(kazoo.Exists)
        look(both.lose_the_connection(1))
        read(kazoo.Exists)
        look(both.expire(0))
    finally:
        both.teardown()


@pytest.mark.parametrize("path", ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"])
def test_the_nodes_of_the_system_are_alike(
    real: ZooKeeper, embedded: EmbeddedZooKeeper, path: str
) -> None:
    def answers(hosts: str) -> list[Any]:
        with raw_client(hosts) as client:
            calls: list[Callable[[], Any]] = [
                lambda: client.get(path),
                lambda: client.get_acls(path),
                lambda: sorted(client.get_children(path)),
                lambda: client.delete(path),
            ]
            return [answer_of(call) for call in calls]

    assert answers(embedded.hosts) == answers(real.hosts)


@pytest.mark.parametrize("scheme", ["digest", "ip", "super", "unheard-of"])
@pytest.mark.parametrize("credentials", ["super:wrong", "no colon"])
def test_credentials_are_alike(
    real: ZooKeeper, embedded: EmbeddedZooKeeper, scheme: str, credentials: str
) -> None:
    """On a node that nobody but ``super`` may write."""

    def answers(hosts: str) -> list[Any]:
        with raw_client(hosts) as client:
            admitted = answer_of(lambda: client.add_auth(scheme, credentials))
            write = partial(client.set, "/zookeeper/config", b"")
            return [admitted, admitted is True and answer_of(write)]

    assert answers(embedded.hosts) == answers(real.hosts)


def answer_of(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the class of its error."""
    try:
        return call()
    except KazooException as error:
        return type(error)
