"""A Redis primary with replicas, and Sentinels that watch over them, all on loopback."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError

from .redis_server import START_TIMEOUT, Redis, RedisFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

#: The name of the primary, as the Sentinels know it.
SERVICE: Final = "locks"


class Sentinel(Redis):
    """One Sentinel.

    :param primary: the port of the server that it watches
    :param quorum: how many must agree that the primary is down
    :param lines: more lines of its configuration
    """

    def __init__(self, primary: int, quorum: int, *lines: str) -> None:
        super().__init__()
        self._lines = f"sentinel monitor {SERVICE} 127.0.0.1 {primary} {quorum}", *lines

    def _arguments(self) -> list[str]:
        configuration = self.home / "sentinel.conf"
        if not configuration.exists():  # it writes there what it learns
            lines = "bind 127.0.0.1", f"port {self.port}", *self._lines
            configuration.write_text("\n".join(lines) + "\n")
        return [str(configuration), "--sentinel"]


class ReplicatedRedis:
    """A primary, its replicas, and a majority of Sentinels that fails over when it is away.

    They end with `stop` and with this process, however that ends.

    :param replicas: their number
    :param options: of each server, as on its command line
    :param down_after: after how many milliseconds without an answer a server counts as down
    :param failover_timeout: in milliseconds; the next failover has twice as long to wait
    """

    def __init__(
        self,
        *options: str,
        replicas: int = 2,
        sentinels: int = 3,
        down_after: int = 1000,
        failover_timeout: int = 5000,
    ) -> None:
        # A replica gets its first copy at once.
        self._options = (*options, "--repl-diskless-sync-delay", "0")
        self._sizes = replicas, sentinels
        self._times = (
            f"sentinel down-after-milliseconds {SERVICE} {down_after}",
            f"sentinel failover-timeout {SERVICE} {failover_timeout}",
        )
        #: The one that was the primary first, and its replicas.
        self.servers: list[Redis] = []
        self.sentinels: list[Sentinel] = []
        self._all = ExitStack()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Return when the Sentinels know each other and all servers."""
        replicas, sentinels = self._sizes
        try:
            first = self._begin(self.servers, Redis(*self._options))
            for _ in range(replicas):
                replica_of = "--replicaof", "127.0.0.1", str(first.port)
                self._begin(self.servers, Redis(*self._options, *replica_of))
            self._until(lambda: self._online(first) == replicas, "the replicas")
            for _ in range(sentinels):
                sentinel = Sentinel(first.port, sentinels // 2 + 1, *self._times)
                self._begin(self.sentinels, sentinel)
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all. Repeating it is fine."""
        self._all.close()

    @property
    def hosts(self) -> str:
        """The URL of the first database, by way of the Sentinels."""
        return f"redis+sentinel://{','.join(one.address for one in self.sentinels)}/{SERVICE}/0"

    @property
    def primary(self) -> Redis:
        """The server that the Sentinels name."""
        for sentinel in self.sentinels:
            if sentinel.running:
                port = self._named_by(sentinel)
                return next(one for one in self.servers if one.port == port)
        raise RedisFailed("No Sentinel is running.")

    def fail_over(self) -> Redis:
        """Let the Sentinels make another server the primary, and return that.

        The former primary lives on: Sentinel makes it a replica only some ten seconds later.
        """
        former = self.primary
        self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE)
        return self.successor(former)

    def successor(self, former: Redis) -> Redis:
        """Wait until all Sentinels name another primary than `former`, and return it."""

        def named() -> set[int]:
            return {self._named_by(one) for one in self.sentinels if one.running}

        self._until(lambda: len(named()) == 1 and former.port not in named(), "a failover")
        return self.primary

    def wait_until_whole(self) -> None:
        """Wait until all servers and Sentinels are there, and ready for the next failover."""
        others = len(self.servers) - 1

        def whole() -> bool:
            if self._online(self.primary) != others:
                return False
            for sentinel in self.sentinels:
                known: dict[str, Any] = sentinel.ask("SENTINEL", "MASTER", SERVICE)
                replicas = sentinel.ask("SENTINEL", "REPLICAS", SERVICE)
                up = [one for one in replicas if one["master-link-status"] == "ok"]
                if (
                    known["flags"] != "master"
                    or int(known["num-other-sentinels"]) != len(self.sentinels) - 1
                    or len([one for one in up if one["flags"] == "slave"]) != others
                ):
                    return False
            return True

        self._until(whole, "all servers and Sentinels")

    def _begin(self, group: list[Any], server: Redis) -> Redis:
        self._all.callback(server.stop)
        server.start()
        group.append(server)
        return server

    @staticmethod
    def _named_by(sentinel: Sentinel) -> int:
        # redis-py asks the same. GET-MASTER-ADDR-BY-NAME names a new primary somewhat earlier.
        return int(sentinel.ask("SENTINEL", "MASTER", SERVICE)["port"])

    @staticmethod
    def _online(server: Redis) -> int:
        """Return how many replicas a server serves."""
        facts = server.ask("INFO", "replication")
        return sum(
            isinstance(fact, dict) and fact.get("state") == "online" for fact in facts.values()
        )

    @staticmethod
    def _until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 2 * START_TIMEOUT
        while not _answer(condition):
            if time.monotonic() > deadline:
                raise RedisFailed(f"There was no end to the wait for {what}.")
            time.sleep(0.05)


def _answer(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except RedisError:
        return False
