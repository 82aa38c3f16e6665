"""The servers of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from distlock_chaos.server import ZooKeeper

from .clock import compile_time, set_clock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distlock_chaos.server import Server

    from .harness import Options


class Site(ZooKeeper):
    """ZooKeeper servers.

    :param stepping_clock: whether `set_clock` sets a server's clock, which needs a Java compiler
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        config: Mapping[str, str] | None = None,
        stepping_clock: bool = False,
    ) -> None:
        super().__init__(nodes, config=config)
        self._stepping_clock = stepping_clock

    def _class_path(self) -> list[Path]:
        """The jars, and before them the clock."""
        jars = super()._class_path()
        if not self._stepping_clock:
            return jars
        for server in self.servers:
            server.folder.mkdir(parents=True, exist_ok=True)
            set_clock(server.folder, 0)
        return [compile_time(self.servers[0].folder.parent / "clock"), *jars]

    def watches(self) -> int:
        """Return how many watches there are."""
        said = [server.command("wchs") for server in self.servers]
        return sum(int(number) for text in said for number in re.findall(r"watches:(\d+)", text))


def change(server: Server, **config: str) -> None:
    """Add lines to a server's zoo.cfg, or replace them; they count from the next start on."""
    with (server.folder / "zoo.cfg").open("a") as zoo_cfg:  # a later line wins
        zoo_cfg.writelines(f"{name}={value}\n" for name, value in config.items())


def site(options: Options) -> Site:
    """Return the servers that a run is for; a block starts and ends them."""
    if options.engine == "redis":
        from .redis_site import RedisSite  # noqa: PLC0415 - of the extra [redis]

        # It has what the faults of its own schedule need.
        clock = "server clock" in options.only
        redis = RedisSite(
            options.nodes,
            volatile=options.volatile,
            stepping_clock=clock,
            session_timeout=options.session_timeout,
        )
        return cast("Site", redis)
    return Site(
        options.nodes,
        config={"tickTime": f"{options.tick * 1000:.0f}"},
        stepping_clock="clock step" in options.only,
    )
