"""The servers of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from distlock.testing.server import ZooKeeper

if TYPE_CHECKING:
    from .harness import Options


class Site(ZooKeeper):
    """ZooKeeper servers."""

    def watches(self) -> int:
        """Return how many watches there are."""
        said = [server.command("wchs") for server in self.servers]
        return sum(int(number) for text in said for number in re.findall(r"watches:(\d+)", text))


def site(options: Options) -> Site:
    """Return the servers that a run is for; a block starts and ends them."""
    if options.engine == "redis":
        from .redis_site import RedisSite  # noqa: PLC0415 - of the extra [redis]

        # It has what the faults of its own schedule need.
        clock = "server clock" in options.only
        return cast("Site", RedisSite(volatile=options.volatile, stepping_clock=clock))
    return Site(
        options.nodes,
        config={"tickTime": f"{options.tick * 1000:.0f}"},
        stepping_clock="clock step" in options.only,
    )
