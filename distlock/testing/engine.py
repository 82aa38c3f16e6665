"""Proves an engine: tries each promise of `distlock.engine.protocol` on servers that run.

::

    import distlock.testing.engine

    class TestMyEngine(distlock.testing.engine.EngineTestCase):
        hosts = "scheme://where/it/is"
"""

from __future__ import annotations

import threading
import time
import unittest
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from distlock.conf import Configuration
from distlock.engine.asking import Asking
from distlock.engine.deadline import now
from distlock.engine.errors import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    NotEmpty,
    failed_step,
    refusal,
)
from distlock.engine.protocol import CONTAINER, EPHEMERAL, SEQUENTIAL
from distlock.engine.reply import Reply
from distlock.session.reaper import end_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Requests

#: How long an answer, or a connection, may take, in seconds.
PATIENCE: Final = 20.0
#: How long a server may take to notice that a session's time is over, beyond the session timeout.
LATE: Final = 10.0


class Side(Asking):
    """A session that is asked one thing after the other."""

    def __init__(self, conf: Configuration) -> None:
        self.conf = conf
        #: The reports of the client, "up" and "down", and what a test adds.
        self.told: list[str] = []
        super().__init__(conf, PATIENCE)
        self.await_connection()

    def changed(self, connected: bool, session_id: int) -> None:
        self.told.append("up" if connected else "down")
        super().changed(connected, session_id)

    @property
    def id(self) -> int:
        """The session's id."""
        return self.client.credentials[0]

    def await_connection(self, other_than: int = 0) -> None:
        """Wait for a connection, with another session than this one."""
        until(lambda: self.connected.is_set() and self.id not in (0, other_than))

    def ask(self, request: Callable[[Requests], Any]) -> Any:
        """Return the outcome of a request: a value, or an error."""
        return self.ask_all([request(self.client)])[0]

    def ask_all(self, requests: list[Any]) -> list[Any]:
        """Return the outcomes of several requests that are sent together."""
        self.deadline = time.monotonic() + PATIENCE
        return self.outcomes(*requests)

    def expire(self) -> None:
        """Let somebody else end the session, and begin another one."""
        before, password = self.client.credentials
        assert end_session(self.conf, before, password, PATIENCE)
        self.ask(lambda make: make.proof("/", by_write=True))  # notices it
        self.await_connection(before)


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It is not so in time."
        time.sleep(0.005)


class EngineTestCase(unittest.TestCase):
    """The promises of an engine, each as a test with two sessions and a node of its own."""

    #: A value for ``HOSTS``.
    hosts: str
    #: In seconds. The servers must grant it.
    session_timeout: float = 4.0

    def setUp(self) -> None:
        self.conf = Configuration(hosts=self.hosts, session_timeout=self.session_timeout)
        self.root = f"/promise-{uuid4()}"
        self.one, self.two = self.side(), self.side()
        self.ask = self.one.ask
        assert isinstance(self.ask(lambda make: make.node(self.root)), tuple)

    def side(self) -> Side:
        """Return a session that ends with the test."""
        side = Side(self.conf)
        self.addCleanup(side.close)
        return side

    def tearDown(self) -> None:
        left = [self.root, *(f"{self.root}/{name}" for name in self.names())]
        self.two.ask_all([self.two.client.deletion(path) for path in reversed(left)])

    def names(self) -> list[str]:
        """Return the names below the node, as the second session sees them."""
        synced, names = self.two.ask_all(
            [self.two.client.proof(self.root, by_write=True), self.two.client.listing(self.root)]
        )
        assert refusal(synced) is None
        return sorted(names)

    # --- nodes -----------------------------------------------------------------------------------

    def test_contenders_are_numbered_in_their_order(self) -> None:
        prefix, sides = f"{self.root}/lock-", [self.one, self.two, self.one]
        made = [
            side.ask(lambda make: make.node(prefix, b"data", EPHEMERAL | SEQUENTIAL))
            for side in sides
        ]
        assert [path for path, _ in made] == [f"{prefix}{number:010d}" for number in range(3)]
        stats = [stat for _, stat in made]
        assert [stat.ephemeralOwner for stat in stats] == [side.id for side in sides]
        assert [stat.dataLength for stat in stats] == [4, 4, 4]

    def test_numbers_and_tokens_rise_also_after_a_delete(self) -> None:
        prefix, paths, tokens = f"{self.root}/lock-", list[str](), list[int]()
        for side in (self.one, self.two, self.two, self.one):
            path, stat = side.ask(lambda make: make.node(prefix, b"", EPHEMERAL | SEQUENTIAL))
            assert side.ask_all([side.client.deletion(path)]) == [True]
            paths.append(path)
            tokens.append(stat.czxid)
        assert paths == sorted(set(paths))
        assert tokens == sorted(set(tokens))

    def test_threads_get_their_own_outcomes(self) -> None:
        client, wrong, finished = self.one.client, list[Any](), list[threading.Event]()

        def submit(number: int) -> None:
            for turn in range(20):
                path, told = f"{self.root}/{number}-{turn}-", threading.Event()

                def done(value: Any, error: Any, path: str = path, told: Any = told) -> None:
                    if error is not None or value[0][:-10] != path:
                        wrong.append((path, value, error))
                    told.set()

                finished.append(told)
                request = client.node(path, b"", EPHEMERAL | SEQUENTIAL)
                client.submit((request, Reply(done, None, lambda _: None, 0)))

        threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(told.wait(PATIENCE) for told in finished)
        assert wrong == []
        assert len({name[-10:] for name in self.names()}) == 80

    def test_outcomes_come_in_the_order_of_the_requests(self) -> None:
        client, name = self.one.client, f"{self.root}/node"
        (path, stat), names, deleted, gone = self.one.ask_all(
            [
                client.node(name, b"x", EPHEMERAL),
                client.listing(self.root),
                client.deletion(name),
                client.reading(name),
            ]
        )
        assert (path, stat.dataLength, names) == (name, 1, ["node"])
        assert deleted is True
        assert isinstance(gone, NoNode)

    def test_errors_have_their_names(self) -> None:
        root = self.root
        self.ask(lambda make: make.node(f"{root}/a"))
        wrong: list[tuple[type[Exception], Callable[[Requests], Any]]] = [
            (NodeExists, lambda make: make.node(f"{root}/a")),
            (NoNode, lambda make: make.node(f"{root}/b/c")),
            (NoNode, lambda make: make.listing(f"{root}/b")),
            (NoNode, lambda make: make.reading(f"{root}/b")),
            (NoNode, lambda make: make.writing(f"{root}/b", b"", -1)),
            (NoNode, lambda make: make.deletion(f"{root}/b")),
            (NotEmpty, lambda make: make.deletion(root)),
            (BadVersion, lambda make: make.writing(f"{root}/a", b"", 7)),
            (BadVersion, lambda make: make.deletion(f"{root}/a", 7)),
        ]
        for error, request in wrong:
            assert isinstance(self.ask(request), error)

    def test_a_write_counts_and_dates_itself(self) -> None:
        path, data = f"{self.root}/node", bytes(range(256))
        _, made = self.ask(lambda make: make.node(path))
        written = self.two.ask(lambda make: make.writing(path, data, 0))
        assert (made.version, written.version) == (0, 1)
        assert written.mzxid > written.czxid == made.czxid
        assert written.mtime >= made.mtime == written.ctime
        assert self.ask(lambda make: make.reading(path)) == (data, written)
        _, stat = self.ask(lambda make: make.reading(self.root))
        assert stat.numChildren == 1

    def test_a_container_is_a_node_like_others(self) -> None:
        path = f"{self.root}/container"
        assert self.ask(lambda make: make.node(path, flags=CONTAINER))[0] == path
        self.ask(lambda make: make.node(f"{path}/child", b"", EPHEMERAL))
        assert isinstance(self.ask(lambda make: make.deletion(path)), NotEmpty)
        self.ask(lambda make: make.deletion(f"{path}/child"))
        assert self.ask(lambda make: make.deletion(path)) is True

    def test_a_transaction_is_carried_out_wholly_or_not_at_all(self) -> None:
        one, two = f"{self.root}/a", f"{self.root}/b"
        outcomes = self.ask(lambda make: make.multi([make.node(one), make.presence(two)]))
        assert isinstance(failed_step(outcomes), NoNode)
        assert self.names() == []
        outcomes = self.ask(lambda make: make.multi([make.node(one), make.writing(one, b"x", 0)]))
        assert failed_step(outcomes) is None
        assert (outcomes[0], outcomes[1].version) == (one, 1)
        outcomes = self.ask(lambda make: make.multi([make.node(two), make.deletion(one, 0)]))
        assert isinstance(failed_step(outcomes), BadVersion)
        assert self.names() == ["a"]

    # --- watches ---------------------------------------------------------------------------------

    def test_a_watch_fires_once_and_between_the_outcomes(self) -> None:
        path, heard = f"{self.root}/node", list[bool]()
        self.ask(lambda make: make.node(path, b"", EPHEMERAL))
        self.two.ask(lambda make: make.reading(path, heard.append))
        self.two.ask(lambda make: make.listing(self.root, heard.append))
        self.ask(lambda make: make.writing(path, b"x", -1))
        self.ask(lambda make: make.writing(path, b"y", -1))
        assert self.two.ask(lambda make: make.reading(path))[0] == b"y"
        assert heard == [False]
        self.two.ask(lambda make: make.reading(path, heard.append))
        self.ask(lambda make: make.deletion(path))
        assert self.names() == []
        assert sorted(heard) == [False, False, True]

    def test_a_watch_that_was_removed_is_silent(self) -> None:
        path, heard = f"{self.root}/node", list[bool]()
        self.ask(lambda make: make.node(path, b"", EPHEMERAL))
        self.two.ask(lambda make: make.reading(path, heard.append))
        self.two.ask(lambda make: make.unwatching(path))
        self.two.client.forget_watchers(path)
        self.ask(lambda make: make.deletion(path))
        assert self.names() == []
        assert heard == []

    # --- the session -----------------------------------------------------------------------------

    def test_a_client_tells_a_session_of_itself(self) -> None:
        client = self.one.client
        assert client.session_timeout == self.session_timeout
        assert client.server
        assert client.trouble is None
        assert self.one.id != self.two.id
        for error in (None, NoNode(), ValueError("said")):
            assert client.explain(error)

    def test_a_living_session_can_be_proven(self) -> None:
        make = self.one.client
        for answer in self.one.ask_all(
            [make.proof(self.root, by_write=False), make.proof(self.root, by_write=True)]
        ):
            assert not isinstance(answer, BaseException)
            assert refusal(answer) is None

    def test_ephemeral_nodes_go_with_their_session_and_others_stay(self) -> None:
        self.ask(lambda make: make.node(f"{self.root}/mine", b"", EPHEMERAL))
        self.ask(lambda make: make.node(f"{self.root}/lasting"))
        assert self.one.client.say_goodbye(PATIENCE)
        assert self.one.client.stopped
        assert self.names() == ["lasting"]

    def test_a_lost_connection_is_reported_before_what_is_lost_with_it(self) -> None:
        side, before = self.one, self.one.id
        self.ask(lambda make: make.node(f"{self.root}/mine", b"", EPHEMERAL))
        self.ask(lambda make: make.reading(self.root, lambda _: side.told.append("watch")))
        side.told.clear()

        def done(value: Any, error: BaseException | None) -> None:
            side.told.append("reply" if isinstance(error, ConnectionLost) else repr(value or error))

        def lose_with_a_request() -> None:  # which is not sent yet
            side.client.drop()
            side.client.submit(
                (side.client.proof("/", by_write=True), Reply(done, None, lambda _: None, 0))
            )

        side.client.soon(lose_with_a_request)
        until(lambda: side.told[-1:] == ["up"])
        assert side.told[0] == "down"
        assert sorted(side.told[1:-1]) == ["reply", "watch"]
        assert side.id == before
        assert self.names() == ["mine"]

    def test_a_session_that_the_servers_do_not_hear_ends_after_its_timeout(self) -> None:
        path, before, gone = f"{self.root}/mine", self.one.id, list[float]()
        self.ask(lambda make: make.node(path, b"", EPHEMERAL))
        self.two.ask(lambda make: make.reading(path, lambda _: gone.append(now())))
        sent_at = now()
        self.ask(lambda make: make.proof(self.root, by_write=True))
        self.one.client.cut_off = True
        self.one.client.drop()
        until(lambda: gone, self.session_timeout + LATE)
        # A hold is trusted until then; see `SessionDeadline`.
        assert gone[0] - sent_at > self.session_timeout * 2 / 3
        assert self.names() == []
        self.one.client.cut_off = False
        self.one.await_connection(other_than=before)

    def test_a_session_can_be_ended_by_who_has_its_password(self) -> None:
        path, before = f"{self.root}/mine", self.one.id
        self.ask(lambda make: make.node(path, b"", EPHEMERAL))
        wrong = bytes(len(self.one.client.credentials[1]))
        assert not end_session(self.conf, before, wrong, PATIENCE)
        assert self.names() == ["mine"]
        self.one.expire()
        assert self.names() == []
        _, stat = self.ask(lambda make: make.node(path, b"", EPHEMERAL))
        assert stat.ephemeralOwner == self.one.id != before
