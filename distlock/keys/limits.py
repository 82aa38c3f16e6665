"""Lists the limits of a ZooKeeper server; an administrator may change those with a name."""

from __future__ import annotations

from typing import Final

#: The last number of a request, the last version of a node, and the last sequence number under a
#: node: there the server's counter sticks (ZOOKEEPER-3249).
MAX_INT: Final = 2**31 - 1
#: The digits of a sequence number in a node's name, without a minus sign.
SEQUENCE_DIGITS: Final = 10

#: ``jute.maxbuffer``: the longest message that a server reads, in bytes.
LONGEST_MESSAGE: Final = 0xFFFFF
#: ``maxClientCnxns``: the connections from one address.
CONNECTIONS: Final = 60
#: ``minSessionTimeout`` and ``maxSessionTimeout``: the session timeouts granted, in ticks.
LEAST_TICKS: Final = 2
MOST_TICKS: Final = 20


def signed(number: int) -> int:
    """Return a number as the server's signed 32-bit counters have it."""
    return (number + 2**31) % 2**32 - 2**31
