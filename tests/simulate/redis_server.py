"""A Redis server, on which ``tree.lua`` runs as it is, and the sockets of its clients.

The client is distlock's own, too. The data are those that ``tree.lua`` needs; sets are in the order
of addition.
"""

from __future__ import annotations

import secrets
import select
import socket
import threading
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import hiredis
from lupa.lua51 import LuaError, LuaRuntime, lua_type

from distlock.engine.redis.library import digest
from distlock.engine.wire import Wire

from .links import DELAY, END, Connection
from .world import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from .links import Links
    from .world import World

#: The time of day at the beginning, in seconds.
_EPOCH: Final = 1_700_000_000
_MORE: Final = object()
_CONTAINER: Final = 4


class Data:
    """Keys and their values; texts have a character for each byte."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.keys: dict[str, Any] = {}

    def call(self, command: str, *arguments: Any) -> Any:
        """Carry out a command."""
        return getattr(self, f"_{command.lower()}")(*map(_text, arguments))

    def _hash(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.keys.setdefault(key, {})
        return found

    def _time(self) -> list[str]:
        return [f"{int(part)}" for part in divmod(self._server.time_of_day * 1e6, 1e6)]

    def _info(self, *_: str) -> str:
        server = self._server
        up = int(server.time_of_day) - int(server.started)
        return f"run_id:{server.run_id:040x}\r\nuptime_in_seconds:{up}\r\nsecond_repl_offset:-1\r\n"

    def _publish(self, channel: str, message: str) -> int:
        return self._server.publish(channel, message)

    def _pubsub(self, _: str, channel: str) -> list[Any]:
        return [channel, len(self._server.channels.get(channel, ()))]

    def _del(self, *keys: str) -> None:
        for key in keys:
            self.keys.pop(key, None)

    def _hget(self, key: str, field: str) -> Any:
        return self._hash(key).get(field, False)

    def _hmget(self, key: str, *fields: str) -> list[Any]:
        return [self._hget(key, field) for field in fields]

    def _hset(self, key: str, *pairs: Any) -> None:
        self._hash(key).update(zip(pairs[::2], pairs[1::2], strict=True))

    def _hsetnx(self, key: str, field: str, value: str) -> None:
        self._hash(key).setdefault(field, value)

    def _hexists(self, key: str, field: str) -> int:
        return int(field in self._hash(key))

    def _hdel(self, key: str, *fields: str) -> int:
        return sum(self._hash(key).pop(field, None) is not None for field in fields)

    def _sadd(self, key: str, member: str) -> int:
        new = member not in self._hash(key)
        self._hash(key)[member] = ""
        return int(new)

    _srem = _hdel

    def _smembers(self, key: str) -> list[str]:
        return list(self._hash(key))

    def _spop(self, key: str, count: str) -> list[str]:
        taken = self._smembers(key)[: int(count)]
        self._hdel(key, *taken)
        return taken

    def _zadd(self, key: str, *arguments: str) -> None:
        scores = self._hash(key)
        *options, score, member = arguments
        if not options or float(score) > scores.get(member, 0.0):
            scores[member] = float(score)

    _zrem = _hdel

    def _zcard(self, key: str) -> int:
        return len(self._hash(key))

    def _zscore(self, key: str, member: str) -> Any:
        score = self._hash(key).get(member)
        return False if score is None else _text(score)

    def _zrange(self, key: str, first: str, last: str, *options: str) -> list[str]:
        scores = self._hash(key)
        members = sorted(scores, key=lambda one: (scores[one], one))
        if "BYSCORE" in options:
            low, high = float(first.removeprefix("(")), float(last)
            members = [one for one in members if low <= scores[one] <= high]
            if first.startswith("("):
                members = [one for one in members if scores[one] > low]
        else:
            members = members[int(first) : int(last) + 1 or None]
        if "LIMIT" in options:
            start, count = map(int, options[options.index("LIMIT") + 1 :][:2])
            members = members[start : start + count]
        if "WITHSCORES" in options:
            return [part for one in members for part in (one, _text(scores[one]))]
        return members


def _text(value: Any) -> Any:
    return f"{value:.17g}" if isinstance(value, int | float) else value


class RedisServer(Host):
    """A server, whose clock may be set, and which may lose its data when it crashes."""

    role = "leading"
    serving = True
    least = 0

    def __init__(self, world: World, links: Links, random: Random) -> None:
        super().__init__(world, "server0", random)
        self.links = links
        self.wall = 0.0
        #: By the channel, the connections that hear it.
        self.channels: dict[str, dict[Connection, None]] = {}
        self.data = Data(self)
        self.tree = self
        self.begin()
        self.started -= 60.0  # it has kept no locks for long

    @property
    def time_of_day(self) -> float:
        return _EPOCH + self.world.time + self.wall

    def begin(self) -> None:
        """Begin, or begin again after a crash."""
        self.dead = False
        self.started = self.time_of_day
        self.run_id = self.random.getrandbits(160)
        if self.random.random() < 0.5:
            self.data.keys.clear()
        #: What runs each script, by its digest.
        self._scripts: dict[str, Any] = {}

    def crash(self) -> None:
        """End at once."""
        self.die()
        self.channels.clear()
        self.links.close_all(self)

    def accept(self, link: Connection) -> None:
        """Serve a client."""
        reader = hiredis.Reader(notEnoughData=_MORE)

        def take(message: Any) -> None:
            if message is END:
                for heard in self.channels.values():
                    heard.pop(link, None)
                link.close(1)
                return
            reader.feed(message)
            while (command := reader.gets()) is not _MORE:
                link.send(1, self._answer(link, [one.decode("latin-1") for one in command]))

        link.take[1] = take

    def publish(self, channel: str, message: str) -> int:
        """Tell all who hear a channel."""
        heard = self.channels.get(channel, ())
        for link in heard:
            link.send(1, _reply(["message", channel, message], ">"))
        return len(heard)

    def _answer(self, link: Connection, command: list[str]) -> bytes:
        match command:
            case ["HELLO", _]:
                return _reply(["version", "7.4.0", "role", "master"]).replace(b"*4", b"%2", 1)
            case ["SUBSCRIBE", channel]:
                self.channels.setdefault(channel, {})[link] = None
                return _reply(["subscribe", channel, 1], ">")
            case ["UNSUBSCRIBE", channel]:
                self.channels[channel].pop(link, None)
                return _reply(["unsubscribe", channel, 0], ">")
            case ["SCRIPT", "LOAD", code]:
                self._load(code)
                return b"+OK\r\n"
            case ["EVALSHA", name, _, *arguments] if name in self._scripts:
                if arguments:
                    self.world.happened(f"answer to {arguments[1]}", link.hosts[0])
                return self._scripts[name](arguments)  # type: ignore[no-any-return]
        return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"

    def _load(self, code: str) -> None:
        lua = LuaRuntime(encoding="latin-1")

        def call(*command: Any) -> Any:
            result = self.data.call(*command)
            return lua.table_from(result) if isinstance(result, list) else result

        values: Any = lua.globals()
        values.redis = lua.table_from({"call": call})
        run = lua.compile(code)

        def script(arguments: list[str]) -> bytes:
            values.KEYS = lua.table_from(arguments[:1])
            values.ARGV = lua.table_from(arguments[1:])
            try:
                return _reply(run())
            except LuaError as error:
                raise AssertionError(f"{error}") from error

        self._scripts[digest(code.encode("latin-1")).decode()] = script

    # --- for the judge ---------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        """The nodes that are no containers, after the root."""
        return [
            "/",
            *(
                f"{key.partition(':n:')[2]}/{name}"
                for key, children in self.data.keys.items()
                for name, node in children.items()
                if ":n:" in key and "/" not in name and not int(node.split()[0]) & _CONTAINER
            ),
        ]

    @property
    def watches(self) -> dict[str, Any]:
        return {
            f"{key} {field}": ids
            for key, children in self.data.keys.items()
            for field, ids in children.items()
            if ":n:" in key and field.endswith(("/d", "/l"))
        }

    @property
    def sessions(self) -> dict[int, float]:
        return {}


def _reply(value: Any, kind: str = "*") -> bytes:
    if isinstance(value, str):
        data = value.encode("latin-1")
        return b"$%d\r\n%s\r\n" % (len(data), data)
    if value is None or value is False:
        return b"_\r\n"
    if isinstance(value, int | float):
        return b":%d\r\n" % value
    if lua_type(value) == "table":
        if value["err"]:
            return f"-{value['err']}\r\n".encode()
        value = list(_array(value))
    return f"{kind}{len(value)}\r\n".encode() + b"".join(map(_reply, value))


def _array(table: Any) -> Iterator[Any]:
    number = 1
    while (one := table[number]) is not None:
        yield one
        number += 1


# --- the sockets of clients ----------------------------------------------------------------------


class Socket:
    """One end of a connection, or of a pair that wakes a thread."""

    def __init__(self, link: Any = None) -> None:
        self.link = link
        self.received = b""
        self.ended = False
        self.thread: Any = None
        if isinstance(link, Connection):
            link.take[0] = self._take

    def _take(self, message: Any) -> None:
        if message is END:
            self.ended = True
        else:
            self.received += message
        if self.thread is not None:
            self.thread.wake()

    def recv(self, most: int) -> bytes:
        if not (self.received or self.ended):
            raise BlockingIOError
        taken, self.received = self.received[:most], self.received[most:]
        return taken

    def send(self, message: bytes) -> int:
        if self.ended:
            raise BrokenPipeError
        if isinstance(self.link, Socket):
            self.link._take(message)
        else:
            self.link.send(0, message)
        return len(message)

    def shutdown(self, _: int) -> None:
        self._take(END)
        self.link.close(0)

    def close(self) -> None:
        self.ended = True
        if isinstance(self.link, Connection):
            self.link.close(0)

    def fileno(self) -> int:
        return id(self)

    def getpeername(self) -> tuple[str, int]:
        return "server0", 6379

    def setblocking(self, _: bool) -> None:
        """It never blocks."""


class _Wire(Socket):
    """`Wire` over one of these sockets."""

    transmit: Any = Wire.transmit
    cut: Any = Wire.cut
    fail_unanswered: Any = Wire.fail_unanswered

    def __init__(self, connected: Socket, pack: Callable[[Any], tuple[int, bytes]]) -> None:
        super().__init__(connected.link)
        self.received, self.ended = connected.received, connected.ended
        self._pack = pack
        self.lock = threading.Lock()
        self.unanswered: deque[Any] = deque()
        self.rest = b""
        self.unfinished = self.over = False
        self.sent_at = 0.0

    def close(self) -> None:
        if not self.over:
            self.over = True
            super().close()
            self.fail_unanswered()


class Address:
    """Where the server is."""

    def __init__(self, world: World) -> None:
        self._world = world

    def connect(self, timeout: float) -> Any:
        """Return a connection, as redis-py does."""
        process = self._world.here
        (server,) = process.servers
        thread = self._world.thread
        works = process.links.works(process, server)
        thread.wait(2 * DELAY if works else timeout)
        if server.dead or not works:
            raise ConnectionRefusedError
        link = Connection(process.links, (process, server))
        server.now(link, server.accept, link)
        return SimpleNamespace(_sock=Socket(link))


def in_place(world: World, random: Random) -> dict[Any, Any]:
    """Return what takes the place of what distlock's client imports."""

    def pair() -> tuple[Socket, Socket]:
        one = Socket()
        return one, Socket(one)

    return {
        select: SimpleNamespace(**{**vars(select), "poll": _poll(world)}),
        socket: SimpleNamespace(**{**vars(socket), "socketpair": pair, "socket": Socket}),
        secrets: SimpleNamespace(
            randbits=random.getrandbits, token_hex=lambda _: f"{random.getrandbits(128):032x}"
        ),
        Wire: _Wire,
    }


def _poll(world: World) -> type:
    class Poll:
        def __init__(self) -> None:
            self._sockets: dict[Socket, int] = {}

        def register(self, one: Socket, event: int) -> None:
            self._sockets[one] = event

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            if not (found := self._ready()) and milliseconds:
                for one in self._sockets:
                    one.thread = world.thread
                world.thread.wait(milliseconds / 1000)
                for one in self._sockets:
                    one.thread = None
                found = self._ready()
            return found

        def _ready(self) -> list[tuple[int, int]]:
            return [
                (one.fileno(), event)
                for one, event in self._sockets.items()
                if one.received or one.ended or event == select.POLLOUT
            ]

    return Poll
