"""Redis servers with the methods of the ZooKeeper servers that the harness breaks."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from distlock.conf import Configuration
from distlock.engine.redis import requests
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.redis_server import REFUSALS, START_TIMEOUT, Redis, RedisFailed

from .tree import NAMESPACE

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from typing_extensions import Self

#: The session timeout of the first client of a server that was replaced, in seconds.
HASTY_SECONDS: Final = 0.5


class RedisNode:
    """Stands in for `distlock_chaos.server.Server`.

    :ivar port: the port of its clients
    """

    def __init__(self, redis: Redis, port: int) -> None:
        self._redis = redis
        self.port = port
        self.kill = redis.kill
        self.pause = redis.pause
        self.resume = redis.go_on
        self.wait_until_serving = redis.wait_until_serving

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
    """Stands in for `distlock_chaos.server.ZooKeeper`: a server, and its replicas.

    With replicas, a name leads to the primary, as in managed services: `servers` has the primary
    alone, and a connection stays with a server that another one has replaced.

    :param nodes: the number of servers
    :param volatile: whether they keep nothing on disk
    :param stepping_clock: whether the clock of a single one can be set
    :param session_timeout: of all processes, in seconds
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        volatile: bool = False,
        stepping_clock: bool = False,
        session_timeout: float = 0,
    ) -> None:
        # A replica gets its first copy at once.
        hasty = "--repl-diskless-sync-delay", "0"
        self._options = (*hasty, "--appendonly", "no") if volatile else hasty
        self._primary = Redis(*self._options, stepping_clock=stepping_clock)
        self._replicas = [Redis() for _ in range(nodes - 1)]
        self._session_timeout = session_timeout
        self.servers: list[RedisNode] = []
        self._all = ExitStack()

    def __enter__(self) -> Self:
        # The harness has empty containers removed as soon as the test servers of ZooKeeper do.
        self._all.enter_context(patch.object(requests, "EMPTY_MS", 1000))
        # And all processes of a run have one session timeout.
        self._all.enter_context(patch.object(requests, "USUAL_SECONDS", self._session_timeout))
        try:
            self._all.enter_context(self._primary)
            self._primary.grant_at_once(NAMESPACE)
            port = self._primary.port
            for replica in self._replicas:
                replica.options = self._following(self._primary)
                self._all.enter_context(replica)
            if self._replicas:
                self._await_replicas()
                self._name = self._all.enter_context(TcpProxy("127.0.0.1", port))
                port = self._name.port
            self.servers.append(RedisNode(self._primary, port))
        except BaseException:
            self._all.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._all.close()

    @property
    def hosts(self) -> str:
        """The URL of the server, or of the name."""
        return f"redis://127.0.0.1:{self.servers[0].port}/0"

    def leader(self) -> RedisNode:
        """The server, or the primary."""
        return self.servers[0]

    def watches(self) -> int:
        """Return how many watches there are."""
        return sum(self._primary.ask("SCARD", key) for key in self._primary.ask("KEYS", "*:w:*"))

    # --- replicas --------------------------------------------------------------------------------

    def promote(self) -> Redis:
        """Give the name to the replica that has most; return the former primary, as it was."""
        former, self._primary = self._primary, max(self._replicas, key=_offset)
        self._replicas.remove(self._primary)
        self._primary.options = self._options
        self._primary.ask("REPLICAOF", "NO", "ONE")
        for replica in self._replicas:
            self._follow(replica)
        self._name.lead_to(self._primary.port)
        self.servers[:] = [RedisNode(self._primary, self._name.port)]
        return former

    def demote(self, former: Redis) -> None:
        """Make a former primary a replica, which ends no connection; start it if it is gone."""
        self._replicas.append(former)
        self._follow(former)
        self._await_replicas()

    def part_from_replicas(self) -> None:
        """Let no replica hear of the primary any more, until that starts again."""
        self._primary.ask("ACL", "SETUSER", "default", "-psync", "-sync")
        self._primary.ask("CLIENT", "KILL", "TYPE", "replica")

    def _follow(self, replica: Redis) -> None:
        replica.options = self._following(self._primary)
        if replica.running:
            replica.ask("REPLICAOF", "127.0.0.1", self._primary.port)
        else:
            replica.run()

    def _following(self, primary: Redis) -> tuple[str, ...]:
        return *self._options, "--replicaof", "127.0.0.1", str(primary.port)

    def _await_replicas(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        for replica in self._replicas:
            while _facts(replica).get("master_link_status") != "up":
                if time.monotonic() > deadline:
                    raise RedisFailed("The replicas do not follow the primary.")
                time.sleep(0.05)


def _facts(replica: Redis) -> dict[str, Any]:
    facts: dict[str, Any] = replica.ask("INFO", "replication")
    return facts


def _offset(replica: Redis) -> int:
    return int(_facts(replica)["slave_repl_offset"])
