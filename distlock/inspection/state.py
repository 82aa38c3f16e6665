"""Describes locks: their holders, their waiters, and since when. `tree` fills the values in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from distlock.keys import templates
from distlock.keys.znodes import Participant
from distlock.lease.nodes import LeaseHolder
from distlock.text import printable

Kind: TypeAlias = Literal["mutex", "read/write", "semaphore", "lease", "leader", "unknown"]
Mode: TypeAlias = Literal["lock", "read", "write", "lease"]

#: The parent of leases under the namespace, and the prefix of a leader's name there. No key of a
#: lock begins with these: there, two hex digits or a dash follow a percent sign.
LEASES: Final = "@leases"
LEADER: Final = "%leader:"
#: The age of a node in seconds, from which on its hold, of which nothing is known yet, is new.
_NEW: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One node of a lock, and its participant.

    :ivar participant: the node's data; a `LeaseHolder` for a persistent lease
    :ivar mode: the purpose of the node: ``lock`` to hold alone, ``read``, ``write`` or ``lease``
    :ivar holds: whether it holds the lock, or else waits
    :ivar since: when the node was created, by the server's clock; for a lease, whose owners share
        one node, the time that the owner gives
    :ivar seconds: the seconds since then, by the same clock
    :ivar held: the seconds since the grant, by the same clock; None for a waiter, for a peer, and
        in the first seconds of a hold
    :ivar readable: False if the node's ACL does not let us read it; then only the name is known
    """

    participant: Participant
    mode: Mode
    holds: bool
    since: datetime | None = None
    seconds: float | None = None
    held: float | None = None
    readable: bool = True

    def __str__(self) -> str:
        if not self.readable:
            return "somebody whose node may not be read"
        return printable(str(self.participant))

    @property
    def is_new(self) -> bool:
        """Whether it was granted in the last seconds, after a longer wait."""
        noted = self.held is not None or self.participant.revoked  # or never
        return not noted and self.owner != "" and (self.seconds or 0) > _NEW

    @property
    def process(self) -> str:
        """Its process, ``host:pid``, empty if unknown."""
        one = self.participant
        return f"{one.host}:{one.pid}" if one.host else ""

    @property
    def owner(self) -> str:
        """The id of the owner, unique over all processes; empty for peers and if unknown."""
        lease = isinstance(self.participant, LeaseHolder)  # its owners name themselves
        return "" if lease else self.participant.owner_id


def brief(one: Contender) -> Contender:
    """Return a participant without its thread or task, if it says what it does: that tells more."""
    if not one.participant.label:
        return one
    return replace(one, participant=replace(one.participant, worker=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """One lock that somebody holds or waits for, or a semaphore whose limit was set.

    :ivar key: its key; for a long key, the part that the tree has kept, and ``…``
    :ivar name: its place under the namespace
    :ivar path: the path of its node
    :ivar kind: ``mutex``, ``read/write``, ``semaphore`` (also a `zk_semaphore_mutex`), ``lease``,
        ``leader``, or ``unknown``: only foreign nodes, or nodes that we may not list
    :ivar holding: the number of holders
    :ivar waiting: the number of waiters; those that do not queue have no node and are missing
    :ivar tasks: the number of Celery tasks that wait for their turn outside the queue
        (``on_busy="queue"``). One that tries just now is a waiter, too, and one with several rules
        counts for each; lost ones count until ``manage.py distlock sweep``.
    :ivar holders: the holders, as many as were asked for, in order
    :ivar waiters: the waiters, as many as were asked for, first come first
    :ivar limit: the number of permits of a semaphore, None if unknown
    :ivar limit_is_set: whether that was set at run time, and is not that of the code
    :ivar foreign: names of nodes of other recipes, such as kazoo's own `Lock`, which does not
        exclude ours
    :ivar readable: False if the ACL does not let us list the nodes
    """

    key: str
    name: str
    path: str
    kind: Kind
    holding: int = 0
    waiting: int = 0
    tasks: int = 0
    holders: tuple[Contender, ...] = ()
    waiters: tuple[Contender, ...] = ()
    limit: int | None = None
    limit_is_set: bool = False
    foreign: tuple[str, ...] = ()
    readable: bool = True

    def __str__(self) -> str:
        return printable(self.key)

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """Its holders, and then its waiters."""
        return self.holders + self.waiters

    @property
    def revoked(self) -> tuple[Contender, ...]:
        """The contenders that were asked to leave."""
        return tuple(one for one in self.contenders if one.participant.revoked)

    @property
    def held(self) -> float | None:
        """The seconds since the grant of the first holder; None as for a `Contender`."""
        return max((one.held for one in self.holders if one.held is not None), default=None)

    @property
    def longest_wait(self) -> float:
        """The seconds for which the first waiter has waited."""
        return max((one.seconds for one in self.waiters if one.seconds is not None), default=0.0)


#: The orders of a list: by key, or by these with the greatest first.
ORDERS: Final[dict[str, Callable[[Lock], Any]]] = {
    "key": lambda lock: lock.key,
    "waiting": lambda lock: -(lock.waiting + lock.tasks),
    "wait": lambda lock: (-lock.longest_wait, -lock.tasks),
    "held": lambda lock: -(lock.held or 0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The locks of a namespace, as read within a moment, which is no single instant.

    :ivar using: the alias in ``DISTLOCK``
    :ivar namespace: the setting ``NAMESPACE``, below which the locks are
    :ivar locks: the locks, in order of their names, leases last
    :ivar keys: the number of selected keys, in use or not
    :ivar cut: whether the time was up before all were read
    :ivar taken_at: the time of the snapshot, by the server's clock
    :ivar exact: False if the server's time was not available, and waits are by our own clock
    """

    using: str
    namespace: str
    locks: tuple[Lock, ...]
    keys: int
    cut: bool = False
    taken_at: datetime
    exact: bool


def key_of(name: str) -> tuple[str, Kind]:
    """Return the key for a lock's `name` under the namespace, and its kind as far as known."""
    kind: Kind = "mutex"
    if name.startswith(LEADER):
        kind, name = "leader", name.removeprefix(LEADER)
    elif name.startswith(f"{LEASES}/"):
        kind, name = "lease", name.removeprefix(f"{LEASES}/")
    key = templates.key_of(name)
    if key is None:
        key = unquote(name.partition("%-")[0], errors="replace") + "\N{HORIZONTAL ELLIPSIS}"
    return key, kind
