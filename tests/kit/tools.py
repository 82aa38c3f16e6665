"""Tools of the mutex tests: owners that do as they are told, and the tree as others see it."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import django
from django.conf import settings
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from distlock.engine.postgresql.requests import Request as PostgresRequest
from distlock.engine.redis.requests import Request
from distlock.keys.templates import znode_name
from distlock.keys.znodes import in_line
from distlock.session import patience
from distlock.session.reaper import end_session
from distlock.session.registry import session_for, sessions

from .helpers import ANSWER_SECONDS, eventually
from .stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from typing_extensions import Self

    from distlock.session.session import Session

T = TypeVar("T")

#: The names of Redis' and PostgreSQL's requests → the classes of kazoo's.
_KINDS = {
    "create": "Create2",
    "set": "SetData",
    "delete": "Delete",
    "check": "CheckVersion",
    "read": "GetData",
    "list": "GetChildren",
    "ping": "Sync",
    "renew": "Sync",
    "unwatch": "_RemoveWatches",
}

#: How long a test waits for what must happen, in seconds.
PATIENCE = 20.0
#: How often the servers of the tests look for empty containers, in seconds.
REAP_SECONDS = 1.0
#: By how much a call may overrun its time, whatever breaks, in seconds (promise 7).
OVERRUN = 0.5


class Owner:
    """A thread of its own, which makes it an owner of locks: `submit` and `now` give it orders.

    In a pool, each order would be another owner.
    """

    def __init__(self) -> None:
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._obey, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Fail if the thread does not come to its end; a test that has failed may leave it so."""
        try:
            self.now(lambda: None)
        finally:
            self._orders.put(None)

    def submit(self, order: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
        """Let the thread do something when it has done the rest."""
        outcome: Future[T] = Future()

        def obey() -> None:
            try:
                outcome.set_result(order(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - is for whoever asks
                outcome.set_exception(error)

        self._orders.put(obey)
        return outcome

    def _obey(self) -> None:
        while (obey := self._orders.get()) is not None:
            obey()
            del obey  # which keeps what it has returned

    def now(self, order: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Let the thread do something, and return the outcome."""
        return self.submit(order, *args, **kwargs).result(PATIENCE)


MakeOwner = Callable[[], Owner]


class Tree:
    """A namespace, looked at with a client that has nothing to do with distlock."""

    def __init__(self, client: KazooClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def path(self, key: str) -> str:
        return f"{self.namespace}/{znode_name(key)}"

    def line(self, key: str) -> list[str]:
        """The names of the lock nodes under a key, first come first."""
        return [node.name for node in in_line(self.children(self.path(key)))]

    def children(self, path: str) -> list[str]:
        try:
            return list(self.client.get_children(path))
        except NoNodeError:
            return []

    def lock_nodes(self) -> list[str]:
        """The names of all lock nodes of the namespace."""
        return [
            node.name
            for key in self.children(self.namespace)
            for node in in_line(self.children(f"{self.namespace}/{key}"))
        ]

    def await_line(self, key: str, length: int) -> list[str]:
        """Wait until so many stand in line."""
        eventually(
            lambda: len(self.line(key)) == length, PATIENCE, f"a line of {length} for {key!r}"
        )
        return self.line(key)

    def watches(self) -> Counter[str]:
        """How many sessions watch each path of the namespace.

        Without those of holders on their own nodes, which come with the first heartbeat.
        """
        watched: Counter[str] = Counter()
        path, owner = "", 0
        for line in self.client.command(b"wchp").splitlines():
            if line.startswith("/"):
                path = line
                stat = self.client.exists(path) if self.namespace in path else None
                owner = stat.ephemeralOwner if stat else 0
            elif line.strip() and self.namespace in path and int(line, 16) != owner:
                watched[path] += 1
        return watched

    def await_watches(self, *paths: str) -> None:
        """Wait until exactly these paths are watched, each by one session."""
        expected, watched = Counter(paths), Counter[str]()

        def as_expected() -> bool:
            nonlocal watched
            watched = self.watches()
            return watched == expected

        with suppress(AssertionError):
            eventually(as_expected, PATIENCE)
        # Not looked at again: who gives up in a line may watch for a moment before it goes.
        assert watched == expected, (
            f"watched: {watched}, expected: {expected}; this process has "
            f"{[(hex(one.id), one.connected, kept(one)) for one in sessions()]}, and "
            f"the server says:\n{self.client.command(b'wchp')}"
        )


def await_connection(using: str = "default") -> Session:
    """Return the session of an alias once it has a connection."""
    session = session_for(using)
    eventually(lambda: session.connected and session.id, PATIENCE, "a connection")
    return session


def inside(session: Session) -> Any:
    """Return the client of a session, with what only its engine has."""
    return session._client


def end_and_await(session: Session) -> int:
    """End a session on the server, and return its id."""
    number, password = session._client.credentials
    end_session(session.conf, number, password, timeout=PATIENCE)
    eventually(lambda: session.id != number, PATIENCE, "another session")
    return number


def expire(hosts: str, session: Session) -> int:
    """End a session on the server, and return its id: a second client takes it over and closes it.

    kazoo's own ``expire_session`` does nothing but tell the client.
    """
    if "://" in session.conf.hosts:
        return end_and_await(session)
    # Its `client_id` is None in an outage.
    number, password = inside(session)._session_id, inside(session)._session_passwd
    deadline = time.monotonic() + 2 * PATIENCE
    while session.id == number:
        assert time.monotonic() < deadline, "the session could not be expired"
        thief = KazooClient(hosts, client_id=(number, password))
        # The victim may take its session back from the thief, before that has it or has closed it.
        with suppress(KazooTimeoutError):
            thief.start(timeout=2.0)
        taken, _ = thief.client_id or (number, b"")
        thief.stop()
        thief.close()
        if taken != number:  # there was none to take any more
            break
    return int(number)


def record_requests(monkeypatch: pytest.MonkeyPatch, *clients: type[Any]) -> list[str]:
    """Return the kinds of the requests that clients of these classes send, as they do."""
    sent: list[str] = []

    def recording(submit: Any) -> Any:
        def record(self: Any, *calls: tuple[Any, Any], **how: Any) -> None:
            sent.extend(_kind(request) for request, _ in calls)
            submit(self, *calls, **how)

        return record

    for client in clients:
        monkeypatch.setattr(client, "submit", recording(client.submit))
    return sent


def _kind(request: Any) -> str:
    if isinstance(request, PostgresRequest):
        if request.call == "change" and not request.step:
            return "Transaction"
        kind = request.step[0] if request.step else request.function.decode()
        return _KINDS[kind or ("unwatch" if request.arguments[:1] == ("unwatch",) else "renew")]
    if not isinstance(request, Request):
        return type(request).__name__
    if not request.changes:
        return _KINDS[request.function.decode()]
    return _KINDS[request.arguments[0].decode()] if request.path else "Transaction"


def kept(session: Session) -> dict[str, list[object]]:
    """What a session remembers of requests, watches, deletes and contenders."""
    memory: dict[str, list[object]] = {
        "watchers": list(session.watches.watchers),
        "requests": list(session._in_flight),
        "deletes": list(session.deletes.pending),
        "contenders": list(session.contenders),
        "newest": list(session.newest),
        "batches": list(session.batches),
        "nodes": list(session.local_nodes),
        "lines": list(session.lines),
        "kazoo's watchers": [*inside(session)._data_watchers, *inside(session)._child_watchers],
    }
    return {name: remembered for name, remembered in memory.items() if remembered}


def settle(session: Session) -> None:
    """Wait until what was posted to a session is done, and every request has its answer.

    Asked on the connection thread, where an answer and all that it leads to are one step.
    """

    def settled() -> bool:
        answer: SimpleQueue[bool] = SimpleQueue()
        session.soon(lambda: answer.put(not session._in_flight))
        return answer.get(timeout=PATIENCE)

    eventually(settled, PATIENCE, lambda: f"all answered: {kept(session)}")


@contextmanager
def held_back(session: Session) -> Iterator[None]:
    """Keep the connection thread from all else until the block ends."""
    busy, over = threading.Event(), threading.Event()

    def hold_back() -> None:
        busy.set()
        assert over.wait(PATIENCE)

    session.soon(hold_back)
    assert busy.wait(PATIENCE)  # or a step that is posted now may come before it
    try:
        yield
    finally:
        over.set()


def forgets_all(session: Session) -> None:
    """Wait until a session remembers nothing."""
    eventually(lambda: not kept(session), PATIENCE, lambda: f"nothing kept: {kept(session)}")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail when the block takes longer, not counting for how long the machine held it up."""
    with Stopwatch() as watch:
        yield
    assert watch.taken <= seconds, (
        f"took {watch.taken:.2f} s, and may take {seconds:g} s; held up for {watch.held_up:.2f} s"
    )


def set_up(hosts: str, namespace: str, *, as_shipped: bool = False, **options: Any) -> None:
    """Make Django and distlock ready in a process of a test's own.

    :param as_shipped: how long a call waits for an answer is the subject
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    defaults = {"HOSTS": hosts, "NAMESPACE": namespace, "SESSION_TIMEOUT": 4, "TIMEOUT": None}
    settings.DISTLOCK = {"default": {**defaults, **options}}
    settings.DEBUG = hosts == "embedded"  # which is for development
    django.setup()
    if not as_shipped:
        patience.ANSWER_SECONDS = ANSWER_SECONDS
