"""What is told of a lock: who holds it, who waits, since when. `inspection` fills it in.

These are values: nothing in them asks the server, and every face (the admin, the commands, the
metrics) shows the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import unquote

from distlock.keys import templates
from distlock.keys.znodes import printable
from distlock.lease.nodes import LeaseHolder

if TYPE_CHECKING:
    from distlock.keys.znodes import Participant

#: ``semaphore`` is also the kind of a `zk_semaphore_mutex`, ``lease`` that of a `zk_lease`; with
#: ``unknown`` there are only nodes of no recipe of ours, or they may not be listed.
Kind: TypeAlias = Literal["mutex", "read/write", "semaphore", "lease", "leader", "unknown"]
#: What a contender's node is for: to hold alone, to read, to write, or a lease.
Mode: TypeAlias = Literal["lock", "read", "write", "lease"]
#: Why a snapshot has not all locks: there is another page, or the time was up.
Cut: TypeAlias = Literal["", "page", "budget"]

#: Where leases are under the namespace, and what stands before a leader's name there. The recipes
#: (`lease_nodes`, `leader`) import this file's users.
LEASES: Final = "@leases"
LEADER: Final = "%leader:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One node of a lock, and who stands on it.

    :ivar participant: what the node says; a `LeaseHolder` for a persistent lease
    :ivar holds: whether it holds the lock, or else waits
    :ivar since: since when it stands there, by the server's clock; for a lease, which has no node
        of its own for each owner, what the owner says
    :ivar seconds: the same as a number of seconds until now
    :ivar readable: False where the node's ACL does not let us read it; then only the name is known
    """

    participant: Participant
    mode: Mode
    holds: bool
    since: datetime | None = None
    seconds: float | None = None
    readable: bool = True

    def __str__(self) -> str:
        if not self.readable:
            return "somebody whose node may not be read"
        return printable(str(self.participant))

    @property
    def owner(self) -> str:
        """The id of the owner, no other's in any process; empty for peers and where unknown."""
        lease = isinstance(self.participant, LeaseHolder)  # whose owners name themselves
        return "" if lease else self.participant.owner_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """One lock that somebody holds or waits for.

    :ivar key: its key; of a long one, what the tree has kept of it, and ``…``
    :ivar name: where it is under the namespace; pages continue after it
    :ivar path: its node
    :ivar holding: how many hold it
    :ivar waiting: how many wait; those who do not queue have no node and are not seen
    :ivar holders: who holds it, as many as were asked for, in order
    :ivar waiters: who waits, as many as were asked for, first come first
    :ivar limit: how many leases a semaphore has, None where nobody has said
    :ivar foreign: names of nodes that are no recipe's of ours, such as those of kazoo's own `Lock`,
        which does not exclude us
    :ivar readable: False where the ACL does not let us list who is there
    """

    key: str
    name: str
    path: str
    kind: Kind
    holding: int = 0
    waiting: int = 0
    holders: tuple[Contender, ...] = ()
    waiters: tuple[Contender, ...] = ()
    limit: int | None = None
    foreign: tuple[str, ...] = ()
    readable: bool = True

    def __str__(self) -> str:
        return printable(self.key)

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """Holders and waiters."""
        return self.holders + self.waiters

    @property
    def revoked(self) -> tuple[Contender, ...]:
        """Those who were asked to leave."""
        return tuple(one for one in self.contenders if one.participant.revoked)

    @property
    def age(self) -> float | None:
        """For how many seconds the first holder has been there: its wait and its hold."""
        return max((one.seconds for one in self.holders if one.seconds is not None), default=None)

    @property
    def longest_wait(self) -> float:
        """For how many seconds the first of the waiters has waited."""
        return max((one.seconds for one in self.waiters if one.seconds is not None), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The locks of a namespace, as read within a moment (which is no single instant).

    :ivar keys: how many keys were asked for, whether somebody is there or not
    :ivar cut: why `locks` are not all: ``page`` (there are more), ``budget`` (the time was up), or
        empty
    :ivar next: where to continue if cut: the `after` of the next page
    :ivar taken_at: when, by the server's clock
    :ivar exact: False where the server's time could not be had: waits are by our own clock
    """

    using: str
    namespace: str
    locks: tuple[Lock, ...]
    keys: int
    cut: Cut = ""
    next: str = ""
    taken_at: datetime
    exact: bool


def key_of(name: str) -> tuple[str, Kind]:
    """Return the key of a lock's `name` under the namespace, and its kind as far as that tells."""
    kind: Kind = "mutex"
    if name.startswith(LEADER):
        kind, name = "leader", name.removeprefix(LEADER)
    elif name.startswith(f"{LEASES}/"):
        kind, name = "lease", name.removeprefix(f"{LEASES}/")
    key = templates.key_of(name)
    if key is None:
        key = unquote(name.partition("%-")[0], errors="replace") + "\N{HORIZONTAL ELLIPSIS}"
    return key, kind
