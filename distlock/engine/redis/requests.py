"""Names the requests of a session, as the script of the server takes them.

They answer as those to ZooKeeper do: with paths, and with kazoo's stats and errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hiredis

from distlock.engine import kazoo
from distlock.engine.deadline import now
from distlock.engine.errors import REFUSALS
from distlock.engine.own_client import LIST, READ, Asked
from distlock.engine.protocol import EPHEMERAL

from .address import address, tls_of
from .library import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Configuration

#: How long an empty container stays, in milliseconds.
EMPTY_MS: Final = 60_000
#: The default of `SESSION_TIMEOUT` (`conf.Configuration.session_timeout`), in seconds.
USUAL_SECONDS: Final = 10

# The steps that replicas must confirm.
_CREATE, _SET = b"create", b"set"

_CHANGE: Final = b"change"
_UNWATCH: Final = b"unwatch"
PING: Final = b"ping"
_CLOSE: Final = b"close"
_CONNECT: Final = b"connect"
_RENEWING: Final = (PING, _CONNECT)


def data_and_stat(answer: list[Any]) -> tuple[bytes, kazoo.ZnodeStat]:
    """Return what the server answers of a node, and of its children if it may have some."""
    node, *facts = answer
    _, owner, version, czxid, ctime, data = node.split(b" ", 5)
    mzxid, mtime = czxid, ctime
    if version != b"0":
        mzxid, mtime, data = data.split(b" ", 2)
    made, children, pzxid = (int(fact or 0) for fact in facts or (0, 0, 0))
    stat = kazoo.ZnodeStat(
        *map(int, (czxid, mzxid, ctime, mtime, version)),
        2 * made - children,
        0,
        int(owner),
        len(data),
        children,
        pzxid or int(czxid),
    )
    return data, stat


def _stat(told: list[Any], _: int) -> kazoo.ZnodeStat:
    return data_and_stat(told)[1]


def names_in(answer: Any) -> list[str]:
    return [name.decode() for name in answer]


def _flag(watcher: object) -> bytes:
    return b"0" if watcher is None else b"1"


def _nothing(_: Any) -> bool:
    return True


def _done(_: Any, __: int) -> bool:
    return True


def _number(answer: list[Any]) -> int:
    """Return the number of the transaction; 0 if it only checked."""
    return int(answer[1] or 0)


@dataclass(slots=True)
class Request:
    """One call of the script.

    :ivar function: what it asks
    :ivar arguments: those of that
    :ivar read: returns the outcome for the answer, or raises the error
    :ivar path: of the node
    :ivar watcher: called when the watch fires
    :ivar children: whether that watches the names of the children
    :ivar counts: whether replicas must confirm it, where ``REPLICAS`` is set
    :ivar changes: whether it has a transaction's number in its answer
    :ivar outcome: returns the outcome for its part of the answer and the number of the transaction,
        where it is a step
    """

    function: bytes
    arguments: tuple[bytes, ...]
    read: Callable[[Any], Any]
    path: str = ""
    watcher: Callable[[bool], None] | None = None
    children: bool = False
    counts: bool = False
    changes: bool = False
    outcome: Callable[[Any, int], Any] = _done

    @property
    def creates(self) -> bool:
        """Whether it creates a node, by itself."""
        return bool(self.path) and self.arguments[0] == _CREATE


def _place(path: str) -> tuple[bytes, bytes]:
    """Return the path of a node's parent, which is empty for the root, and its name."""
    parent, _, name = path.rpartition("/")
    return parent.encode(), name.encode()


def _step(
    name: bytes,
    path: str,
    data: bytes,
    number: int,
    outcome: Callable[[Any, int], Any] = _done,
) -> Request:
    """Return one step of a transaction, and a transaction by itself."""

    def read(answer: Any) -> Any:
        if answer[0] >= 0:
            raise REFUSALS[answer[1].decode()]
        return outcome(answer[2], _number(answer))

    return Request(
        _CHANGE,
        (name, *_place(path), data, b"%d" % number),
        read,
        path,
        counts=name in (_CREATE, _SET),
        changes=True,
        outcome=outcome,
    )


def _transaction(steps: list[Request]) -> Request:
    """Return all steps or none; it answers the list of their outcomes, as ZooKeeper does."""

    def read(answer: Any) -> list[Any]:
        if (failed := answer[0]) < 0:
            number, outcomes = _number(answer), zip(steps, answer[2:], strict=True)
            told = [step.outcome(one, number) for step, one in outcomes]
            return [one[0] if step.creates else one for step, one in zip(steps, told, strict=True)]
        after = len(steps) - failed - 1
        return [
            *(kazoo.RolledBackError() for _ in range(failed)),
            REFUSALS[answer[1].decode()](),
            *(kazoo.RuntimeInconsistency() for _ in range(after)),
        ]

    return Request(
        _CHANGE,
        tuple(one for step in steps for one in step.arguments),
        read,
        counts=any(step.counts for step in steps),
        changes=True,
    )


class Requests:
    """Makes the requests that a client sends; `distlock.engine.protocol` tells of each."""

    session_id = 0

    def node(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        parent = path.rpartition("/")[0]

        def outcome(told: bytes, zxid: int) -> tuple[str, kazoo.ZnodeStat]:
            at, _, name = told.decode().partition(" ")
            ms = int(at)
            owner = self.session_id if flags & EPHEMERAL else 0
            return f"{parent}/{name}", kazoo.ZnodeStat(
                zxid, zxid, ms, ms, 0, 0, 0, owner, len(data), 0, zxid
            )

        return _step(_CREATE, path, data, flags, outcome)

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return Request(
            LIST, (*_place(path), _flag(changed)), names_in, path, changed, children=True
        )

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return Request(READ, (*_place(path), _flag(changed)), data_and_stat, path, changed)

    def writing(self, path: str, data: bytes, version: int) -> Any:
        return _step(_SET, path, data, version, _stat)

    def deletion(self, path: str, version: int = -1) -> Any:
        return _step(b"delete", path, b"", version)

    def presence(self, path: str) -> Any:
        return _step(b"check", path, b"", -1)

    def multi(self, steps: list[Any]) -> Any:
        return _transaction(steps)

    def proof(self, path: str, *, by_write: bool) -> Any:
        # Each is a write. If a replica has taken the server's place, `counts` asks one of those.
        return Request(PING, (b"%d" % EMPTY_MS,), int, counts=True)

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        return Request(_UNWATCH, (*_place(path), b"l" if children else b"d"), _nothing)


def good_bye() -> Request:
    """End the session."""
    return Request(_CLOSE, (), _nothing)


def beginning(conf: Configuration, last: int | None, *, new: bool = True) -> Request:
    """Begin the session, or carry it on after its transaction `last` if it still lives.

    :param new: whether this process of the server is not known to have had a session
    """
    transaction = b"" if last is None else b"%d" % last
    return Request(_CONNECT, (b"%d" % unknown_ms(conf), transaction, _flag(new or None)), _nothing)


def unknown_ms(conf: Configuration) -> float:
    """Return for how long a server grants nothing after its start, if it knows no session.

    It may have had some, of processes with another ``SESSION_TIMEOUT``.
    """
    return max(conf.session_timeout, USUAL_SECONDS) * 1000


def prefix(conf: Configuration) -> bytes:
    """Return what all keys begin with: a hash tag, so that one server of a cluster has them.

    The number of the database is for channels, which all databases share.
    """
    return _prefix(conf.hosts, conf.namespace)


@cache
def _prefix(hosts: str, namespace: str) -> bytes:
    return f"{{{namespace}}}:{address(hosts).options.get('db', 0)}:".encode()


def session_arguments(
    conf: Configuration, session_id: int, password: bytes, connection: int = 0
) -> tuple[bytes, ...]:
    """Return what every call begins with: prefix, token, timeout, number of the connection, id."""
    number, milliseconds = b"%d" % session_id, conf.session_timeout * 1000
    token = number + b":" + password
    return prefix(conf), token, b"%d" % milliseconds, b"%d" % connection, number


def call(session: tuple[bytes, ...], request: Any) -> tuple[bytes, ...]:
    """Return a request as the command that calls the script.

    One that renews the session ends with our clock, by which the server checks its own.
    """
    key, *arguments = session
    command = (b"EVALSHA", NAME, b"1", key, request.function, *arguments, *request.arguments)
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
# what a first look at it would show.

_JOIN: Final = b"join"
#: The flag of such a node.
_QUEUED: Final = 8


def joining(step: Request) -> Request:
    """Return the step as one that also lists the parent."""
    *most, flags = step.arguments

    def read(answer: Any) -> Any:
        created = step.read(answer)
        alone = len(answer) < 5
        return created, [created[0].rpartition("/")[2]] if alone else names_in(answer[4])

    arguments = *most, b"%d" % (int(flags) | _QUEUED)
    return replace(step, function=_JOIN, arguments=arguments, read=read)


def also_told(request: Any, answer: Any) -> dict[Asked, Any]:
    """Return what else an answer tells: the outcomes of requests that need not be made.

    The answer to a `_JOIN` has the node before the new one, whose changes the server will report.
    """
    if request.function == _JOIN and len(answer) > 4 and answer[3]:
        _, _, _, before, names = answer
        parent = request.path.rpartition("/")[0]
        return {(READ, f"{parent}/{names[-2].decode()}"): data_and_stat(before)}
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
