"""The servers of a run, each on loopback, and how many requests they have got."""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from benchmarks.bench.libraries import SESSION_TIMEOUT
from distlock_chaos.server import Server, ZooKeeper
from tests.kit.services import Postgres, PostgresNotInstalled, Redis, RedisNotInstalled

if TYPE_CHECKING:
    from typing_extensions import Self

    from benchmarks.bench.works import Kept

#: The servers of tests look for idle parents of locks every second; ZooKeeper does once a minute.
AS_USUAL = "-Dznode.container.checkIntervalMs=60000"


def counters(server: Server) -> dict[str, int]:
    """Return what a ZooKeeper server has counted (the command ``mntr``)."""
    return {
        name: int(number)
        for name, number in re.findall(r"(?m)^(\w+)\t(\d+)$", server.command("mntr", timeout=30))
    }


class Servers:
    """ZooKeeper, and Redis and PostgreSQL where they are installed.

    :param nodes: of ZooKeeper; the other two only come with a single one
    :ivar missing: what is not installed, and what to type
    """

    def __init__(self, nodes: int = 1, *, others: bool = True) -> None:
        self.zookeeper = ZooKeeper(nodes, jvm=[AS_USUAL])
        self.missing: dict[Kept, str] = {}
        self._others = others
        self._redis: Redis | None = None
        self._postgres: Postgres | None = None
        self._asked = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.zookeeper)
            if self._others:
                try:
                    self._redis = stack.enter_context(Redis())
                except RedisNotInstalled as error:
                    self.missing["Redis"] = str(error)
                try:
                    self._postgres = stack.enter_context(Postgres())
                except PostgresNotInstalled as error:
                    self.missing["PostgreSQL"] = str(error)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def described(self, hosts: str = "") -> dict[str, Any]:
        """Return what a process of contenders is to know.

        :param hosts: another way to ZooKeeper
        """
        servers: dict[str, Any] = {"zookeeper": hosts or self.zookeeper.hosts}
        if self._redis is not None:
            servers["redis"] = self._redis_url
        if self._postgres is not None:
            servers["postgres"] = self._postgres.settings()
        return servers

    def requests(self, kept: Kept) -> int | None:
        """Return how many requests the clients have sent by now; None where nobody counts."""
        if kept == "ZooKeeper":
            # It counts the questions, too, among the packets that it gets.
            self._asked += 1
            got = sum(counters(each)["zk_packets_received"] for each in self.zookeeper.servers)
            return got - self._asked * len(self.zookeeper.servers)
        if kept == "Redis" and self._redis is not None:
            self._asked += 1
            from redis import Redis as Client  # noqa: PLC0415 - of the extra [bench]

            with Client.from_url(self._redis_url) as client:
                return int(client.info("stats")["total_commands_processed"])
        return None

    @cached_property
    def _redis_url(self) -> str:
        return self._redis.new_database() if self._redis is not None else ""


__all__ = ["SESSION_TIMEOUT", "Servers", "counters"]
