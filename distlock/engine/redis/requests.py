"""Names the requests of a session, as the functions of the server take them.

They answer as those to ZooKeeper do: with paths, and with kazoo's stats and errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hiredis

from distlock.engine import kazoo
from distlock.engine.deadline import now

from .address import address, tls_of
from .errors import REFUSALS
from .library import function

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Configuration
    from distlock.engine.reply import Reply

#: How long an empty container stays, in milliseconds.
EMPTY_MS: Final = 60_000
#: The default of `SESSION_TIMEOUT` (`conf.Configuration.session_timeout`), in seconds.
USUAL_SECONDS: Final = 10

# The steps that replicas must confirm.
_CREATE, _SET = b"create", b"set"

_CHANGE: Final = function("change")
#: It takes no memory: it is carried out also where there is none.
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
    path, zxid, ms, owner, length = answer
    return path.decode(), kazoo.ZnodeStat(
        zxid, zxid, ms, ms, 0, 0, 0, int(owner or 0), length, 0, zxid
    )


def data_and_stat(answer: list[Any]) -> tuple[bytes, kazoo.ZnodeStat]:
    data, facts = answer
    return data, _stat(facts)


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
    :ivar read: returns the outcome for the answer, or raises the error
    :ivar path: of the node
    :ivar watcher: called when the watch fires
    :ivar children: whether that watches the names of the children
    :ivar counts: whether replicas must confirm it, where ``REPLICAS`` is set
    :ivar changes: whether it has a transaction's number in its answer
    :ivar outcome: returns the outcome for its part of the answer, where it is a step
    """

    function: bytes
    arguments: tuple[bytes, ...]
    read: Callable[[Any], Any]
    path: str = ""
    watcher: Callable[[bool], None] | None = None
    children: bool = False
    counts: bool = False
    changes: bool = False
    outcome: Callable[[Any], Any] = _nothing

    @property
    def creates(self) -> bool:
        """Whether it creates a node, by itself."""
        return bool(self.path) and self.arguments[0] == _CREATE


def _step(
    name: bytes,
    path: str,
    data: bytes,
    number: int,
    outcome: Callable[[Any], Any] = _nothing,
    *,
    function: bytes = _CHANGE,
) -> Request:
    """Return one step of a transaction, and a transaction by itself."""

    def read(answer: Any) -> Any:
        if answer[0] >= 0:
            raise REFUSALS[answer[1]]
        return outcome(answer[1][0])

    return Request(
        function,
        (name, path.encode(), data, b"%d" % number),
        read,
        path,
        counts=name in (_CREATE, _SET),
        changes=True,
        outcome=outcome,
    )


def _transaction(steps: list[Request]) -> Request:
    """Return all steps or none; it answers the list of their outcomes, as ZooKeeper does."""

    def read(answer: Any) -> list[Any]:
        failed, outcomes, *_ = answer
        if failed < 0:
            told = [step.outcome(one) for step, one in zip(steps, outcomes, strict=True)]
            return [one[0] if step.creates else one for step, one in zip(steps, told, strict=True)]
        after = len(steps) - failed - 1
        return [
            *(kazoo.RolledBackError() for _ in range(failed)),
            REFUSALS[outcomes](),
            *(kazoo.RuntimeInconsistency() for _ in range(after)),
        ]

    return Request(
        _FREE if all(step.function == _FREE for step in steps) else _CHANGE,
        tuple(one for step in steps for one in step.arguments),
        read,
        counts=any(step.counts for step in steps),
        changes=True,
    )


class Requests:
    """Makes the requests that a client sends; `distlock.engine.protocol` tells of each."""

    def node(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        return _step(_CREATE, path, data, flags, _path_and_stat)

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return Request(
            LIST, (path.encode(), _flag(changed)), names_in, path, changed, children=True
        )

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return Request(READ, (path.encode(), _flag(changed)), data_and_stat, path, changed)

    def writing(self, path: str, data: bytes, version: int) -> Any:
        return _step(_SET, path, data, version, _stat)

    def deletion(self, path: str, version: int = -1) -> Any:
        return _step(b"delete", path, b"", version, function=_FREE)

    def presence(self, path: str) -> Any:
        return _step(b"check", path, b"", -1, function=_FREE)

    def multi(self, steps: list[Any]) -> Any:
        return _transaction(steps)

    def proof(self, path: str, *, by_write: bool) -> Any:
        # Each is a write. If a replica has taken the server's place, `counts` asks one of those.
        return Request(PING, (b"%d" % EMPTY_MS,), int, counts=True)

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        return Request(_UNWATCH, (path.encode(), b"l" if children else b"d"), _nothing)


def good_bye() -> Request:
    """End the session."""
    return Request(_CLOSE, (), _nothing)


def beginning(conf: Configuration, last: int | None) -> Request:
    """Begin the session, or carry it on after its transaction `last` if it still lives."""
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
    """Return the arguments of every call: prefix, token, timeout, number of the connection."""
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


# --- joining a line in one call ------------------------------------------------------------------
#
# The server answers the creation of a contender's node and the list of the line at once. It tells
# the owner of such a node of each change of the node before it, as if that were watched, and says
# what a first look at it would show. So who waits in a line asks once, and hears once: see
# `RedisClient.deliver`.

_JOIN: Final = function("join")
#: The flag of such a node.
_QUEUED: Final = 8


class Both(NamedTuple):
    """Where the two outcomes of a `_JOIN` go."""

    created: Reply
    listed: Reply

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Take the answer, or the news that there will be none."""
        node, names = (None, None) if error else value
        self.created.settle(node, error)
        self.listed.settle(names, error)

    def set_exception(self, error: BaseException) -> None:
        """Take the news that there will be no answer."""
        self.settle(None, error)


def joined(create: tuple[Any, Reply], other: tuple[Any, Reply]) -> tuple[tuple[Any, Any], ...]:
    """Return two requests as one if they create a node and list its parent."""
    step, created = create
    listing, listed = other
    of_the_line = LIST, step.path.rpartition("/")[0], None
    if (listing.function, listing.path, listing.watcher) != of_the_line:
        return create, other
    *most, flags = step.arguments

    def read(answer: Any) -> Any:
        return step.read(answer), names_in(answer[3])

    arguments = *most, b"%d" % (int(flags) | _QUEUED)
    joining = replace(step, function=_JOIN, arguments=arguments, read=read)
    return ((joining, Both(created, listed)),)


def also_told(request: Any, answer: Any) -> dict[Asked, Any]:
    """Return what else an answer tells: the outcomes of requests that need not be made.

    The answer to a `_JOIN` has the node before the new one, whose changes the server will report.
    """
    if request.function == _JOIN and len(answer) > 4:
        parent, names = request.path.rpartition("/")[0], answer[3]
        return {(READ, f"{parent}/{names[-2].decode()}"): data_and_stat(answer[4])}
    return {}


# --- ending a session from another process -------------------------------------------------------

#: The seconds that a Sentinel may take to name the primary.
_SENTINEL_SECONDS = 1.0


def report(conf: Configuration, session_id: int, password: bytes) -> dict[str, Any]:
    """Return the facts that `session_reaper.end_session` needs to end a session."""
    found = address(conf.hosts)
    options = found.options
    names = ("username", "password")
    credentials = [options[name].encode() for name in names if options.get(name)]
    commands = [(b"AUTH", *credentials)] if credentials else []
    if options.get("db"):
        commands.append((b"SELECT", b"%d" % options["db"]))
    commands.append(call(session_arguments(conf, session_id, password), good_bye()))
    return {
        "alias": conf.alias,
        "session": session_id,
        "password": password.hex(),
        "servers": [found.server(_SENTINEL_SECONDS)],
        "tls": tls_of(options),
        "commands": [packed(*command).decode() for command in commands],
    }
