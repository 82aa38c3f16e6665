"""What a contender is told along with an answer, or an event, and need not ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from distlock import zk_lock
from distlock.engine.protocol import CONTAINER, EPHEMERAL, SEQUENTIAL
from distlock.engine.redis.client import RedisClient
from distlock.engine.redis.requests import packed
from distlock.engine.reply import Reply
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, inside
from tests.redis.test_bad_input import lock_nodes
from tests.redis.test_grace import await_copy
from tests.testing.sides import Side, configuration

PARENT = "/line"
PREFIX = f"{PARENT}/lock-"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that are called, but for pings."""
    functions: list[str] = []
    packed = RedisClient.packed

    def record(self: RedisClient, request: Any) -> tuple[int, bytes]:
        name = request.function.decode()
        if name != "ping":
            functions.append(name)
        return packed(self, request)

    monkeypatch.setattr(RedisClient, "packed", record)
    return functions


@pytest.fixture
def sides(redis: Redis, sent: list[str]) -> Iterator[tuple[Side, Side]]:
    """Two sessions, and a node whose children they make."""
    conf = configuration(redis.new_database())
    both = Side(conf), Side(conf)
    both[0].ask(lambda make: make.node(PARENT, flags=CONTAINER))
    sent.clear()
    yield both
    for side in both:
        side.client.say_goodbye(1)


class Contender:
    """Joins the line, and then does on the connection thread what a test wants."""

    def __init__(self, side: Side, then: Callable[[Contender], None] = lambda _: None) -> None:
        self.client = side.client
        self.outcomes: list[Any] = []
        self.events: list[bool] = []
        self._then = then
        self._joined = threading.Event()

    def join(self, prefix: str = PREFIX) -> Contender:
        client = self.client
        creation = client.node(prefix, b"mine", EPHEMERAL | SEQUENTIAL), self.reply()
        client.submit(creation, (client.listing(prefix.rpartition("/")[0]), self.reply(self._line)))
        assert self._joined.wait(PATIENCE)
        return self

    def reply(self, then: Callable[[], None] = lambda: None) -> Reply:
        def done(value: Any, error: BaseException | None) -> None:
            self.outcomes.append(value if error is None else error)
            then()

        return Reply(done, None, lambda _: None, self.client.session_id)

    def _line(self) -> None:
        self._then(self)
        self._joined.set()

    def ask(self, request: Any) -> None:
        self.client.submit((request, self.reply()))

    def watch(self, path: str) -> None:
        self.ask(self.client.reading(path, self.events.append))

    def await_outcomes(self, number: int) -> list[Any]:
        eventually(lambda: len(self.outcomes) == number, PATIENCE)
        return self.outcomes

    @property
    def path(self) -> str:
        path: str = self.outcomes[0][0]
        return path

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def test_one_call_creates_and_lists(sides: tuple[Side, Side], sent: list[str]) -> None:
    first = Contender(sides[0]).join()
    second = Contender(sides[1]).join()
    assert sent == ["join", "join"]
    assert first.outcomes[1] == [first.name]
    assert second.outcomes[1] == [first.name, second.name]
    data, stat = sides[0].ask(lambda make: make.reading(second.path))
    assert (data, stat) == (b"mine", second.outcomes[0][1])


def test_without_a_line_both_are_refused(sides: tuple[Side, Side]) -> None:
    outcomes = Contender(sides[0]).join("/missing/lock-").outcomes
    assert [type(outcome) for outcome in outcomes] == [NoNodeError, NoNodeError]


def test_the_one_before_is_known_and_watched(sides: tuple[Side, Side], sent: list[str]) -> None:
    first = Contender(sides[0]).join()
    second = Contender(sides[1], lambda self: self.watch(first.path)).join()
    looked = second.await_outcomes(3)[2]
    assert sent == ["join", "join"]
    assert looked == sides[0].ask(lambda make: make.reading(first.path))
    sides[0].ask(lambda make: make.writing(first.path, b"changed", -1))
    eventually(lambda: second.events == [False], PATIENCE, "news of the change")
    sent.clear()
    second.watch(first.path)
    assert second.await_outcomes(4)[3][0] == b"changed"
    assert sent == ["read"]
    sides[0].ask(lambda make: make.deletion(first.path))
    eventually(lambda: second.events == [False, True], PATIENCE, "news of the deletion")


def test_who_left_hears_nothing_of_the_one_before(sides: tuple[Side, Side]) -> None:
    first = Contender(sides[0]).join()
    second = Contender(sides[1], lambda self: self.watch(first.path)).join()
    sides[1].ask(lambda make: make.deletion(second.path))
    sides[0].ask(lambda make: make.deletion(first.path))
    sides[1].ask(lambda make: make.proof("/", by_write=True))
    assert second.events == []


def test_a_deletion_tells_who_is_left(sides: tuple[Side, Side], sent: list[str]) -> None:
    first = Contender(sides[0]).join()
    second = Contender(sides[1]).join()
    third = Contender(sides[0]).join()

    def gone(_: bool) -> None:
        second.ask(second.client.listing(PARENT))

    second.ask(second.client.reading(first.path, gone))
    second.await_outcomes(3)
    sent.clear()
    sides[0].ask(lambda make: make.deletion(first.path))
    assert second.await_outcomes(4)[3] == [second.name, third.name]
    assert sent == ["change"]


def test_answers_keep_the_order_of_the_requests(sides: tuple[Side, Side], sent: list[str]) -> None:
    """What is told must not overtake the answer to an earlier request."""
    first = Contender(sides[0]).join()
    second = Contender(sides[1]).join()

    def gone(_: bool) -> None:
        second.ask(second.client.reading(second.path))
        second.ask(second.client.listing(PARENT))

    second.ask(second.client.reading(first.path, gone))
    second.await_outcomes(3)
    sent.clear()
    sides[0].ask(lambda make: make.deletion(first.path))
    read, listed = second.await_outcomes(5)[3:]
    assert read[0] == b"mine"
    assert listed == [second.name]
    assert sent == ["change", "read", "list"]


def test_a_later_question_is_asked(sides: tuple[Side, Side], sent: list[str]) -> None:
    """What is told counts while it is reported, and no longer."""
    first = Contender(sides[0]).join()
    second = Contender(sides[1]).join()
    second.watch(first.path)
    second.await_outcomes(3)
    sides[0].ask(lambda make: make.deletion(first.path))
    eventually(lambda: second.events == [True], PATIENCE)
    third = Contender(sides[0]).join()
    sent.clear()
    second.client.soon(lambda: second.ask(second.client.listing(PARENT)))
    assert second.await_outcomes(4)[3] == [second.name, third.name]
    assert sent == ["list"]


def test_a_release_while_replicas_confirm_the_join_wakes_the_waiter(
    use: Callable[..., None], make_owner: MakeOwner
) -> None:
    """The server sends the event while ``WAIT`` blocks the waiter's connection."""
    holder, waiter = make_owner(), make_owner()
    with Redis() as primary, Redis("--replicaof", "127.0.0.1", str(primary.port)) as replica:
        await_copy(replica)
        use(primary.hosts, REPLICAS=1, SESSION_TIMEOUT=40, TIMEOUT=10, CONNECT_TIMEOUT=10)
        holder.now(zk_lock("key", using="other").__enter__)
        connection = inside(await_connection())._connection
        connection._wait = packed(b"WAIT", b"1", b"0")  # as long as it takes
        replica.pause()
        acquired = waiter.submit(zk_lock("key").acquire)
        eventually(lambda: primary.ask("INFO", "clients")["blocked_clients"] == 1, PATIENCE)
        holder.now(zk_lock("key", using="other").release)
        eventually(lambda: len(lock_nodes(primary)) == 1, PATIENCE, "the release")
        replica.go_on()
        assert acquired.result(PATIENCE)
        waiter.now(zk_lock("key").release)
