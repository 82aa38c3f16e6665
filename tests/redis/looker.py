"""The tree in Redis from outside, in the words of kazoo's client that the borrowed tests use."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from kazoo.exceptions import NodeExistsError, NoNodeError
from redis import Redis
from typing_extensions import Self

from distlock.conf import Configuration
from distlock.engine.redis.client import RedisClient
from distlock.engine.redis.requests import prefix
from tests.testing.sides import Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.protocol.states import ZnodeStat


class Looker:
    """Looks at a tree and changes it, over a session of its own."""

    def __init__(self, hosts: str, namespace: str) -> None:
        conf = Configuration(hosts=hosts, namespace=namespace, session_timeout=30, alias="looker")
        self._conf = conf
        self._side = Side(RedisClient, conf)
        #: As kazoo tells them.
        self.hosts = [("127.0.0.1", 1)]

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

    def exists(self, path: str) -> ZnodeStat | None:
        with suppress(NoNodeError):
            return self.get(path)[1]
        return None

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        return self._ask(lambda make: make.reading(path))  # type: ignore[no-any-return]

    def set(self, path: str, data: bytes) -> ZnodeStat:
        return self._ask(lambda make: make.writing(path, data, -1))

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
    ) -> str:
        if makepath:
            self.ensure_path(path.rpartition("/")[0])
        if ephemeral:
            kind = "contender" if sequence else "ephemeral"
            return self._ask(lambda make: getattr(make, kind)(path, data))[0]  # type: ignore[no-any-return]
        return self._ask(lambda make: make.persistent(path, data, sequential=sequence))[0]  # type: ignore[no-any-return]

    def ensure_path(self, path: str) -> None:
        names = path.split("/")
        for depth in range(2, len(names) + 1):
            with suppress(NodeExistsError):
                self.create("/".join(names[:depth]))

    def command(self, word: bytes) -> str:
        """Answer as ZooKeeper does which sessions watch what."""
        assert word == b"wchp", word
        lines: list[str] = []
        with Redis.from_url(self._conf.hosts) as server:
            for kind in (b"d:", b"l:"):
                start = prefix(self._conf) + kind
                for key in server.scan_iter(start + b"*"):
                    ids = cast("set[bytes]", server.smembers(key))
                    lines += [key[len(start) :].decode(), *(f"\t0x{int(one):x}" for one in ids)]
        return "\n".join(lines)

    def add_auth(self, *_: str) -> None:
        """Do nothing: whoever reaches Redis may do everything."""

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        if recursive:
            for name in self.get_children(path):
                self.delete(f"{path}/{name}", recursive=True)
        self._ask(lambda make: make.deletion(path))
        return True
