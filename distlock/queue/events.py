"""Events that happen to a contender, and effects that it wants: the words of `machine`.

An *event* goes in, *effects* come out. All are plain tuples without behaviour. The driver makes the
events from what the server, the session and the caller do, and carries the effects out.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


class Problem(Enum):
    """The errors of the server that a contender deals with. Any other one refuses it."""

    #: ZooKeeper's NoNode.
    MISSING = "missing"
    #: ZooKeeper's NotEmpty.
    NOT_EMPTY = "not empty"


#: Why a grant was lost.
Reason: TypeAlias = Literal["session", "broken", "max_hold"]
#: The error of a request: none, a problem, or an exception that ends the wait.
Error = Problem | BaseException | None


class Node(NamedTuple):
    """The node of a contender, as the server answered its creation."""

    name: str
    #: The czxid: it rises from holder to holder of one key, over removed parents too.
    token: int
    session_id: int
    #: The sequence number that the server gave it: `number_in` the name.
    number: int


def number_in(name: str) -> int:
    """Return the sequence number at the end of a contender's name.

    Of the negative numbers, only the lowest of all has more than ten characters; it counts as worn
    without its sign, too.
    """
    return int(name[-10:])


# --- events of the caller -------------------------------------------------------------------------


class Join(NamedTuple):
    """The caller wants the lock: the first event of a contender."""

    #: Whether another contender of this process came to this line before; a guess, see `machine`.
    follows: bool = False


class Leave(NamedTuple):
    """The caller gives up, or releases the lock: the last event of a contender."""


class GiveUp(NamedTuple):
    """The grant is lost: the caller holds it for too long, or has found its node gone."""

    reason: Reason


#: The usual ones.
JOIN, FOLLOW, LEAVE = Join(), Join(follows=True), Leave()


# --- events of the session ------------------------------------------------------------------------


class Connected(NamedTuple):
    """There is a connection again, of the same session or of a new one."""


class Disconnected(NamedTuple):
    """The connection is lost, and with it all answers and watches that were under way."""


class Renewed(NamedTuple):
    """A heartbeat was acknowledged."""


class Lapsed(NamedTuple):
    """The session deadline has passed."""


class Proved(NamedTuple):
    """The answer to `Prove`: the session deadline was renewed, or the server refused."""


class NeighbourLeft(NamedTuple):
    """The neighbour `name`, behind whom we wait, is our neighbour no more."""

    name: str
    #: The session's epoch of its grant if it hands the lock over, else None.
    epoch: int | None


class HandedOver(NamedTuple):
    """The neighbour that we wait for has handed the lock over to the caller."""

    #: The session's epoch of its grant.
    epoch: int


class Changed(NamedTuple):
    """A watched node has changed. The watch is used up."""

    name: str
    deleted: bool


# --- events of the server: answers, in the order of the requests ----------------------------------


class LineMade(NamedTuple):
    """The answer to `MakeLine`, or to `MakePermits`."""

    error: Error = None


class Created(NamedTuple):
    """The answer to `Create`."""

    node: Node | None
    error: Error = None


class Listed(NamedTuple):
    """The answer to `List`."""

    names: Sequence[str]
    error: Error = None


class LineRead(NamedTuple):
    """The answer to `ReadLine`, or to `WatchLine`."""

    token: int = 0
    version: int = 0
    #: Whether it has no data and no ACL of somebody's own.
    plain: bool = True
    error: Error = None


class LineRemoved(NamedTuple):
    """The answer to `RemoveLine`."""

    error: Error = None


class NodeRead(NamedTuple):
    """The answer to `Read`."""

    name: str
    node: Node | None = None
    data: bytes = b""
    error: Error = None


class Watched(NamedTuple):
    """The answer to `Watch`. On an error there is no watch."""

    name: str
    data: bytes = b""
    version: int = 0
    error: Error = None


class LimitRead(NamedTuple):
    """The answer to `ReadLimit`, or to `WatchLimit`. On an error there is no watch."""

    data: bytes = b""
    version: int = 0
    #: The number of permits in use.
    taken: int = 0
    error: Error = None


class KeptRead(NamedTuple):
    """The answer to `ReadKept`."""

    data: bytes = b""
    error: Error = None


Event = (
    Join
    | Leave
    | GiveUp
    | Connected
    | Disconnected
    | Renewed
    | Lapsed
    | Proved
    | NeighbourLeft
    | HandedOver
    | Changed
    | LineMade
    | Created
    | Listed
    | LineRead
    | LineRemoved
    | NodeRead
    | Watched
    | LimitRead
    | KeptRead
)


# --- effects: requests ----------------------------------------------------------------------------


class MakeLine(NamedTuple):
    """Create the line's own node and all above it, as far as they are missing."""


class Create(NamedTuple):
    """Create an ephemeral node."""

    name: str
    #: Whether the server appends the next number.
    sequential: bool = True


class List(NamedTuple):
    """List the line; if `sync`, with all that the servers have acknowledged before."""

    sync: bool = False


class ReadLine(NamedTuple):
    """Read the line's own node."""


class WatchLine(NamedTuple):
    """Read the line's own node, and watch it for all of this process.

    The watch lasts until it has changed, or nobody of this process comes to the line any more.
    """


class RemoveLine(NamedTuple):
    """Delete the line's own node if it has this version."""

    version: int


class Read(NamedTuple):
    """Read a node."""

    name: str


class Watch(NamedTuple):
    """Read a node with getData, and watch it; never with exists (CURATOR-107)."""

    name: str


class Unwatch(NamedTuple):
    """Take a watch back. No answer is awaited."""

    name: str


class Delete(NamedTuple):
    """Delete a node for certain, unless it went with its session. No answer is awaited."""

    name: str
    session_id: int


class Sweep(NamedTuple):
    """Delete, for certain, the node that an unanswered create may have made. No answer is awaited.

    It is looked for with all that the servers have acknowledged before, by its name's beginning.
    """

    prefix: str


class Prove(NamedTuple):
    """Renew the session deadline by a request of the leader."""


# --- effects: requests at a semaphore's permits ---------------------------------------------------

#: The names of the watches on the permits' node, in `Changed` and `Unwatch`: on its data, and list.
LIMIT: Final = "Limit"
NAMES: Final = "Names"


class ReadLimit(NamedTuple):
    """Read the permits' node, whose data is the limit."""


class ReadKept(NamedTuple):
    """Read the limit that is kept for when the permits' node is missing."""


class MakePermits(NamedTuple):
    """Create the permits' node with this limit, and all above it, as far as they are missing."""

    data: bytes


class WatchLimit(NamedTuple):
    """Read the permits' node, and watch its data."""


class WatchNames(NamedTuple):
    """List the permits, and watch that; see `Listed`."""


class WriteLimit(NamedTuple):
    """Write the limit of our code unless somebody was faster. No answer is awaited."""

    data: bytes
    version: int


# --- effects: what the caller, or a neighbour, is told --------------------------------------------


class Grant(NamedTuple):
    """The caller has the lock."""


class Busy(NamedTuple):
    """Somebody is ahead, and the caller does not want to wait behind so many who wait."""

    waiting: int


class Why(Enum):
    """Why a contender was refused."""

    #: The server answered with an error; `Refuse.about` is the exception.
    ERROR = "error"
    #: `Refuse.about` is a node of a recipe that does not wait for ours.
    INCOMPATIBLE = "incompatible"
    #: The line is at the end of its numbers, and has data or an ACL of somebody's own.
    NOT_REMOVABLE = "not removable"
    #: The write lock was lost before it became a read lock.
    WRITER_LOST = "writer lost"
    #: More permits of a semaphore are wanted than there are.
    BEYOND_LIMIT = "beyond limit"


class Refuse(NamedTuple):
    """The caller gets an error."""

    why: Why
    about: BaseException | str | None = None


class Lose(NamedTuple):
    """The grant is lost."""

    reason: Reason


class Revoke(NamedTuple):
    """Somebody asks the caller to leave."""


#: The usual ones.
LIST, WATCH_LINE, GRANT = List(), WatchLine(), Grant()


class Tell(NamedTuple):
    """Apply `event` to another contender of this process, next."""

    contender: Hashable
    event: NeighbourLeft


#: One of the tuples above, from `MakeLine` on.
Effect: TypeAlias = "tuple[Any, ...]"
