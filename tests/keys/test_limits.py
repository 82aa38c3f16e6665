"""The limits are those of a server, as far as it tells them."""

from __future__ import annotations

from distlock.conf import Configuration
from distlock.keys import limits
from distlock_chaos.server import ZooKeeper


def test_a_server_grants_timeouts_between_the_limits(zookeeper: ZooKeeper) -> None:
    lines = zookeeper.servers[0].command("conf").splitlines()
    conf = dict(line.split("=", 1) for line in lines if "=" in line)
    tick = int(conf["tickTime"])
    assert int(conf["minSessionTimeout"]) == limits.LEAST_TICKS * tick
    assert int(conf["maxSessionTimeout"]) == limits.MOST_TICKS * tick


def test_a_counter_wraps_as_in_java() -> None:
    last, after = limits.MAX_INT, limits.MAX_INT + 1
    assert [limits.signed(number) for number in (0, last, after)] == [0, last, -after]


def test_the_default_setting_is_well_below_the_longest_message() -> None:
    assert Configuration.max_node_bytes < 0.75 * limits.LONGEST_MESSAGE
