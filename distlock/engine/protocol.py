"""The seam between a session and its servers: what each engine's client can do.

`zookeeper.client.Client` and `redis.client.RedisClient` have it. Every answer and error is that of
ZooKeeper: paths, kazoo's stats, and the errors that `distlock.engine.errors` names.
`tests/engine/test_contract.py` gives all of them the same tasks.

- *Everything happens on one thread for each client, the connection thread*: outcomes come in the
  order of the requests, and the event of a watch comes between the outcomes where the change was.
- *No callback may block.* None ever runs in the thread of a caller.
- *A lost connection* is reported first; then all that was asked fails with `ConnectionLost`, and
  watches report ``changed(False)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from .deadline import SessionDeadline
    from .reply import Reply

#: The node ends with its session.
EPHEMERAL: Final = 1
#: The server adds a number to the name.
SEQUENTIAL: Final = 2
#: The server removes the node after its last child has gone.
CONTAINER: Final = 4


class Requests(Protocol):
    """Makes the requests that a client sends; what they are is the engine's matter."""

    def node(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        """Create a node; answers (path, stat).

        :param flags: the sum of `EPHEMERAL`, `SEQUENTIAL` and `CONTAINER`
        """

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        """List the names of the children; `changed` is called as by `reading`."""

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        """Read a node; answers (data, stat).

        :param changed: called at its next change, with whether it was deleted; and with False when
            the connection, and the watch with it, is lost
        """

    def writing(self, path: str, data: bytes, version: int) -> Any:
        """Replace a node's data if it has this version, -1 for any; answers the stat."""

    def acl_reading(self, path: str) -> Any:
        """Read a node's ACL; answers (acl, stat)."""

    def creation(self, path: str) -> Any:
        """Create a node that outlives the session, without data; a step of a `multi`."""

    def presence(self, path: str) -> Any:
        """Require that the node exists; a step of a `multi`."""

    def multi(self, steps: list[Any]) -> Any:
        """Carry out all steps or none; answers the list of their outcomes."""

    def syncing(self, path: str) -> Any:
        """Let the server catch up with all that was acknowledged before."""

    def proof(self, path: str, *, by_write: bool) -> Any:
        """Ask for an answer that only a server gives which keeps the session alive.

        :param path: a node that may exist
        :param by_write: whether a server that may have been deposed must not answer either
        """

    def deletion(self, path: str, version: int = -1) -> Any:
        """Delete a node that has no children, if it has this version, -1 for any."""

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        """Remove this connection's watches on a node's data, or on the names of its children."""


class EngineClient(Requests, Protocol):
    """One connection that keeps itself up, and its session of the moment.

    It is made with the settings of an alias, and with a function that it calls on the connection
    thread when a connection came (True) or went (False), with the id of the session, 0 for none.
    """

    #: The path above the namespace, empty if there is none.
    chroot: str
    #: Whether it will never connect again.
    stopped: bool
    #: The connection thread calls these as soon as it is awake.
    steps: deque[Callable[[], None]]
    #: Until when the session lives. The session renews it; the client of an engine whose servers
    #: answer for one another also tells it of connections and pings.
    deadline: SessionDeadline

    @property
    def credentials(self) -> tuple[int, bytes]:
        """The session's id and its password: whoever has both can end it."""

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server granted, in seconds; 0 before the first session."""

    @property
    def renewed_at(self) -> float | None:
        """When the last request was sent that has renewed the session; None if a create does."""

    @property
    def server(self) -> str:
        """Host and port of the server that it is connected to, empty without a connection."""

    @property
    def trouble(self) -> BaseException | None:
        """The reason why it cannot connect, if one is known."""

    def connect(self) -> None:
        """Begin to connect, and stay connected until `say_goodbye`; does not block."""

    def submit(self, *calls: tuple[Any, Reply], first: bool = False) -> None:
        """Send requests in one go; never blocks.

        :param calls: each request, and where its outcome goes
        :param first: before all others that are not sent yet
        """

    def soon(self, step: Callable[[], None]) -> None:
        """Call `step` on the connection thread while there is a connection; never blocks."""

    def drop(self) -> None:
        """Close a connection that gives no answer, and connect anew; from any thread."""

    def forget_watchers(self, path: str, *, children: bool = False) -> None:
        """Drop the watch callbacks on `path`, once the server has removed its watches."""

    def explain(self, error: BaseException | None) -> str:
        """Return what a user should read when the server answered `error`, or None for nothing."""

    def say_goodbye(self, seconds: float) -> bool:
        """End the session; return whether the server has said in time that it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One server, as `doctor` and the admin page show it.

    :ivar address: as in ``HOSTS``, without credentials
    :ivar reachable: whether it accepted a connection
    :ivar role: ``leader``, ``follower``, ``observer`` or ``standalone``, of Redis ``primary`` or
        ``replica``; empty if unknown
    :ivar serving: False if it reports that it serves nobody, for want of a quorum
    :ivar version: such as ``3.8.0-…``, empty if unknown
    :ivar seconds: the time that its answer took
    :ivar error: the reason why it could not be reached
    """

    address: str
    reachable: bool = False
    role: str = ""
    serving: bool = True
    version: str = ""
    seconds: float = 0.0
    error: str = ""
