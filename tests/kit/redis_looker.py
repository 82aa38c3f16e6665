"""The tree in Redis from outside, in the words of kazoo's client that the borrowed tests use."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from kazoo.exceptions import NodeExistsError, NoNodeError
from redis import Redis
from typing_extensions import Self

from distlock.conf import Configuration
from distlock.engine.protocol import EPHEMERAL, SEQUENTIAL
from distlock.engine.redis.requests import prefix
from distlock.session.registry import sessions
from tests.testing.sides import Side

from .tools import inside

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.protocol.states import ZnodeStat

#: Paths, each with a session that watches it.
Watches = set[tuple[str, int]]


class RedisLooker:
    """Looks at a tree and changes it, over a session of its own."""

    #: As kazoo tells them.
    hosts = (("127.0.0.1", 1),)

    def __init__(self, hosts: str, namespace: str) -> None:
        conf = Configuration(hosts=hosts, namespace=namespace, session_timeout=30, alias="looker")
        self._conf = conf
        self._side = Side(conf)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._side.client.say_goodbye(1)

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self._side.client.credentials  # type: ignore[no-any-return]

    def _ask(self, request: Callable[[Any], Any]) -> Any:
        answer = self._side.ask(request)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def get_children(self, path: str) -> list[str]:
        return self._ask(lambda make: make.listing(path))  # type: ignore[no-any-return]

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        return self._ask(lambda make: make.reading(path))  # type: ignore[no-any-return]

    def set(self, path: str, data: bytes) -> ZnodeStat:
        return self._ask(lambda make: make.writing(path, data, -1))

    def make(self, path: str, data: bytes | None, *, ephemeral: bool, sequence: bool) -> str:
        flags = EPHEMERAL * ephemeral | SEQUENTIAL * sequence
        return self._ask(lambda make: make.node(path, data or b"", flags))[0]  # type: ignore[no-any-return]

    def remove(self, path: str) -> None:
        self._ask(lambda make: make.deletion(path))

    def exists(self, path: str) -> ZnodeStat | None:
        with suppress(NoNodeError):
            return self.get(path)[1]
        return None

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
    ) -> str:
        if makepath:
            self.ensure_path(path.rpartition("/")[0])
        return self.make(path, data, ephemeral=ephemeral, sequence=sequence)

    def ensure_path(self, path: str) -> None:
        names = path.split("/")
        for depth in range(2, len(names) + 1):
            with suppress(NodeExistsError):
                self.create("/".join(names[:depth]))

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        if not recursive:
            self.remove(path)
            return True
        with suppress(NoNodeError):  # the server may have removed an empty parent
            for name in self.get_children(path):
                self.delete(f"{path}/{name}", recursive=True)
            self.remove(path)
        return True

    def command(self, word: bytes) -> str:
        """Answer as ZooKeeper does which sessions watch what."""
        assert word == b"wchp", word
        watching = self.watches()
        # The server needs no watch to tell a contender of the one before it.
        for session in sessions():
            client = inside(session)
            watched = {*client._data_watchers, *client._child_watchers}
            watching |= {(path, session.id) for path in watched}
        return "\n".join(f"{path}\n\t0x{one:x}" for path, one in sorted(watching))

    def watches(self) -> Watches:
        """Return paths, each with the session that watches it."""
        watching: Watches = Watches()
        with Redis.from_url(self._conf.hosts) as server:
            for key in cast("list[bytes]", server.keys(prefix(self._conf) + b"w:*")):
                for watch in cast("set[bytes]", server.smembers(key)):
                    parent, _, field = watch.decode().partition("\0")
                    path = f"{parent}/{field[:-2]}".rstrip("/") or "/"
                    watching.add((path, int(key.rpartition(b":")[2])))
        return watching

    def add_auth(self, *_: str) -> None:
        """Do nothing: whoever reaches the server may do everything."""
