"""Events and effects of a semaphore's contender, besides those of `distlock.queue.events`.

A semaphore has two nodes, and `At` names the one that a request or its answer is for. `LOCKS` is
the queue, `LEASES` has the permits. Events of the session and news for the caller (`Grant`, `Busy`,
`Refuse`) are not marked.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from distlock.queue import events as e

#: The node of the queue, and the node of the permits, whose data is the limit.
LOCKS: Final = "locks"
LEASES: Final = "leases"


class At(NamedTuple):
    """A request at one of the semaphore's nodes, or its answer."""

    where: str
    what: Any


# --- events ---------------------------------------------------------------------------------------


class LimitRead(NamedTuple):
    """The answer to `ReadLimit` and to `WatchPermits`. On an error there is no watch."""

    data: bytes = b""
    version: int = 0
    #: The number of permits in use.
    taken: int = 0
    error: e.Error = None


class PermitsChanged(NamedTuple):
    """There are other permits or, if not `names`, another limit. The watch is used up."""

    names: bool


# --- effects --------------------------------------------------------------------------------------


class ReadLimit(NamedTuple):
    """Read the node of the permits."""


class WriteLimit(NamedTuple):
    """Write the limit of our code unless somebody was faster. No answer is awaited."""

    data: bytes
    version: int


class WatchPermits(NamedTuple):
    """Read the node of the permits, or list `names`, and watch that; see `LimitRead`, `Listed`."""

    names: bool


class UnwatchPermits(NamedTuple):
    """Take that watch back. No answer is awaited."""

    names: bool


Event = At | e.Join | e.Leave | e.Connected | e.Disconnected | e.Renewed
Effect = At | e.Grant | e.Busy | e.Refuse
