"""A Redis server with the methods of the ZooKeeper servers that the harness breaks."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from distlock.conf import Configuration
from distlock.engine.redis import requests
from distlock_chaos.redis_server import REFUSALS, Redis

from .tree import NAMESPACE

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from typing_extensions import Self

#: The session timeout of the first client of a server that was replaced, in seconds.
HASTY_SECONDS: Final = 0.5


class RedisNode:
    """Stands in for `distlock_chaos.server.Server`."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.kill = redis.kill
        self.pause = redis.pause
        self.resume = redis.go_on
        self.wait_until_serving = redis.wait_until_serving

    @property
    def port(self) -> int:
        """The port of its clients."""
        return self._redis.port

    @property
    def address(self) -> str:
        """Its URL."""
        return self._redis.hosts

    @property
    def folder(self) -> Path:
        """Where it runs."""
        return self._redis.home

    def refusing(self, pick: float) -> AbstractContextManager[None]:
        """Refuse writes during a block.

        :param pick: a number below 1 that decides with which error
        """
        return self._redis.refusing(sorted(REFUSALS)[int(pick * len(REFUSALS))])

    def start(self, *, wait: bool = True) -> None:
        """Start it again."""
        self._redis.run(wait=wait)

    def stop(self) -> None:
        """End it in order."""
        self._redis.shut_down()

    def erase(self) -> None:
        """Remove all data; the process must be gone."""
        shutil.rmtree(self._redis.home / "appendonlydir", ignore_errors=True)

    def flush(self) -> None:
        """Let it forget all data, and the functions with what they remember."""
        self._redis.ask("FLUSHALL")
        self._redis.ask("FUNCTION", "FLUSH")

    def meet_hasty(self) -> None:
        """Let a client with a short session timeout be the first, after it has forgotten all."""
        conf = Configuration(
            hosts=self._redis.hosts, namespace=NAMESPACE, session_timeout=HASTY_SECONDS
        )
        self._redis.visit(conf)


class RedisSite:
    """Stands in for `distlock_chaos.server.ZooKeeper`: one server.

    :param volatile: whether it keeps nothing on disk
    :param stepping_clock: whether its clock can be set
    :param session_timeout: of all processes, in seconds
    """

    def __init__(
        self, *, volatile: bool = False, stepping_clock: bool = False, session_timeout: float = 0
    ) -> None:
        options = ("--appendonly", "no") if volatile else ()
        self._redis = Redis(*options, stepping_clock=stepping_clock)
        self._session_timeout = session_timeout
        self.servers = [RedisNode(self._redis)]
        self._all = ExitStack()

    def __enter__(self) -> Self:
        # The harness has empty containers removed as soon as the test servers of ZooKeeper do.
        self._all.enter_context(patch.object(requests, "EMPTY_MS", 1000))
        # And all processes of a run have one session timeout.
        self._all.enter_context(patch.object(requests, "USUAL_SECONDS", self._session_timeout))
        self._all.enter_context(self._redis)
        self._redis.grant_at_once(NAMESPACE)
        return self

    def __exit__(self, *_: object) -> None:
        self._all.close()

    @property
    def hosts(self) -> str:
        """Its URL."""
        return self._redis.hosts

    def leader(self) -> RedisNode:
        """The server."""
        return self.servers[0]

    def watches(self) -> int:
        """Return how many watches there are."""
        lists = [self._redis.ask("HVALS", key) for key in self._redis.ask("KEYS", "*:watches")]
        return sum(len(sessions.split()) for watched in lists for sessions in watched)
