"""Names the requests of a session, as the functions of the server take them.

They answer as those to ZooKeeper do: with paths, and with kazoo's stats and errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hiredis

from distlock.engine import kazoo
from distlock.engine.deadline import now

from .address import address
from .errors import REFUSALS
from .library import function

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.conf import Configuration

#: How long an empty container stays, in milliseconds.
EMPTY_MS: Final = 60_000
#: The default of `SESSION_TIMEOUT` (`conf.Configuration.session_timeout`), in seconds.
USUAL_SECONDS: Final = 10

_CHANGE: Final = function("change")
_FREE: Final = function("free")
READ: Final = function("read")
LIST: Final = function("list")
_UNWATCH: Final = function("unwatch")
PING: Final = function("ping")
_CLOSE: Final = function("close")
_CONNECT: Final = function("connect")
_RENEWING: Final = (PING, _CONNECT)


def _stat(facts: list[Any]) -> kazoo.ZnodeStat:
    czxid, mzxid, ctime, mtime, version, cversion, owner, length, children, pzxid = facts
    owner = int(owner or 0)
    return kazoo.ZnodeStat(
        czxid, mzxid, ctime, mtime, version, cversion, 0, owner, length, children, pzxid
    )


def _path_and_stat(answer: list[Any]) -> tuple[str, kazoo.ZnodeStat]:
    """Return the path and stat of a node that was just created."""
    path, zxid, ms, owner, length = answer
    return path.decode(), kazoo.ZnodeStat(
        zxid, zxid, ms, ms, 0, 0, 0, int(owner or 0), length, 0, zxid
    )


def data_and_stat(answer: list[Any]) -> tuple[bytes, kazoo.ZnodeStat]:
    data, facts = answer
    return data, _stat(facts)


def _path(answer: list[Any]) -> str:
    path: str = answer[0].decode()
    return path


def names_in(answer: Any) -> list[str]:
    return [name.decode() for name in answer]


def _flag(watcher: object) -> bytes:
    return b"0" if watcher is None else b"1"


def _nothing(_: Any) -> bool:
    return True


#: A function and a path.
Asked = tuple[bytes, str]


@dataclass(slots=True)
class Request:
    """One call of a function.

    :ivar function: its name
    :ivar arguments: all but the session's token and timeout
    :ivar read: returns the outcome for the answer
    :ivar path: of the node, for a watch
    :ivar watcher: called when the watch fires
    :ivar children: whether that watches the names of the children
    :ivar counts: whether replicas must confirm it, where ``REPLICAS`` is set
    """

    function: bytes
    arguments: tuple[bytes, ...]
    read: Callable[[Any], Any]
    path: str = ""
    watcher: Callable[[bool], None] | None = None
    children: bool = False
    counts: bool = False

    #: Whether it has a transaction's number in its answer.
    changes = False


@dataclass(slots=True)
class Step:
    """One step of a transaction, and a transaction by itself."""

    name: str
    path: str
    data: bytes
    number: int
    outcome: Callable[[Any], Any] = _nothing

    function = _CHANGE
    watcher = None
    changes = True

    @property
    def arguments(self) -> tuple[bytes, ...]:
        """The arguments of the function."""
        return self.name.encode(), self.path.encode(), self.data, b"%d" % self.number

    @property
    def counts(self) -> bool:
        """Whether replicas must confirm it."""
        return self.name in ("create", "set")

    def read(self, answer: Any) -> Any:
        """Return the outcome, or raise the error."""
        failed, outcomes, *_ = answer
        if failed >= 0:
            raise REFUSALS[outcomes]
        return self.outcome(outcomes[0])


class Freeing(Step):
    """A step that takes no memory: it is carried out also where there is none."""

    function = _FREE


@dataclass(slots=True)
class Transaction:
    """All steps or none; answers the list of their outcomes, as ZooKeeper does."""

    steps: list[Step]

    watcher = None
    changes = True

    @property
    def function(self) -> bytes:
        """The function's name."""
        return _FREE if all(isinstance(step, Freeing) for step in self.steps) else _CHANGE

    @property
    def arguments(self) -> tuple[bytes, ...]:
        """The arguments of the function."""
        return tuple(one for step in self.steps for one in step.arguments)

    @property
    def counts(self) -> bool:
        """Whether replicas must confirm it."""
        return any(step.counts for step in self.steps)

    def read(self, answer: Any) -> list[Any]:
        """Return the outcomes."""
        failed, outcomes, *_ = answer
        if failed < 0:
            return [step.outcome(one) for step, one in zip(self.steps, outcomes, strict=True)]
        after = len(self.steps) - failed - 1
        return [
            *(kazoo.RolledBackError() for _ in range(failed)),
            REFUSALS[outcomes](),
            *(kazoo.RuntimeInconsistency() for _ in range(after)),
        ]


class Requests:
    """Makes the requests that a client sends; `distlock.engine.protocol` tells of each."""

    def node(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        return Step("create", path, data, flags, _path_and_stat)

    def creation(self, path: str) -> Any:
        return Step("create", path, b"", 0, _path)

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return Request(
            LIST, (path.encode(), _flag(changed)), names_in, path, changed, children=True
        )

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return Request(READ, (path.encode(), _flag(changed)), data_and_stat, path, changed)

    def writing(self, path: str, data: bytes, version: int) -> Any:
        return Step("set", path, data, version, _stat)

    def deletion(self, path: str, version: int = -1) -> Any:
        return Freeing("delete", path, b"", version)

    def presence(self, path: str) -> Any:
        return Freeing("check", path, b"", -1)

    def multi(self, steps: list[Any]) -> Any:
        return Transaction(steps)

    def syncing(self, path: str) -> Any:
        # There is one server, and it is up to date.
        return Request(PING, (b"%d" % EMPTY_MS,), lambda _: [True])

    def proof(self, path: str, *, by_write: bool) -> Any:
        # Each is a write.
        return Request(PING, (b"%d" % EMPTY_MS,), int, counts=True)

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        return Request(_UNWATCH, (path.encode(), b"l" if children else b"d"), _nothing)

    def acl_reading(self, path: str) -> Any:
        raise kazoo.UnimplementedError


def good_bye() -> Request:
    """End the session."""
    return Request(_CLOSE, (), _nothing)


def beginning(conf: Configuration, last: int | None) -> Request:
    """Begin the session, or carry it on if it still lives.

    :param last: the number of its last transaction, None for a new session
    """
    transaction = b"" if last is None else b"%d" % last
    return Request(_CONNECT, (b"%d" % unknown_ms(conf), transaction), _nothing)


def unknown_ms(conf: Configuration) -> float:
    """Return for how long a server grants nothing after its start, if it knows no session.

    It may have had some, of processes with another ``SESSION_TIMEOUT``.
    """
    return max(conf.session_timeout, USUAL_SECONDS) * 1000


def prefix(conf: Configuration) -> bytes:
    """Return what all keys begin with: a hash tag, so that one server of a cluster has them.

    The number of the database tells the functions, which all databases share, which one it is.
    """
    return _prefix(conf.hosts, conf.namespace)


@cache
def _prefix(hosts: str, namespace: str) -> bytes:
    return f"{{{namespace}}}:{address(hosts).options.get('db', 0)}:".encode()


def session_arguments(
    conf: Configuration, session_id: int, password: bytes, connection: int = 0
) -> tuple[bytes, ...]:
    """Return the arguments of every call in a session.

    They are the prefix, the token, the timeout and the number of the connection.
    """
    token, milliseconds = b"%d:%s" % (session_id, password), conf.session_timeout * 1000
    return prefix(conf), token, b"%d" % milliseconds, b"%d" % connection


def call(session: tuple[bytes, ...], request: Any) -> tuple[bytes, ...]:
    """Return a request as the command that calls its function.

    One that renews the session ends with our clock, by which the server checks its own.
    """
    command = (b"FCALL", request.function, b"1", *session, *request.arguments)
    if request.function in _RENEWING:
        command += (b"%d" % (now() * 1_000_000),)
    return command


def packed(*command: bytes) -> bytes:
    """Return a command as it is sent.

    Bytes only: the repr of a number runs the handlers of signals, and hiredis uses its result also
    where a handler has raised, which ends the process (``pack_command`` in its ``src/pack.c``).
    """
    parts: Any = command  # hiredis' own types allow only one
    message: bytes = hiredis.pack_command(parts)
    return message
