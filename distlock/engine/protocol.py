"""The contract of an engine: what a session asks of its servers, and what it relies on.

An engine is a package beside this module, with the modules ``settings`` (`Settings`) and ``engine``
(`Engine`); `hosts` lists it. `distlock.testing.engine` holds a client to each promise here.

The servers keep a tree of nodes with ZooKeeper's semantics, in the way that is natural to them. A
*session* owns ephemeral nodes; the servers end it when they have not heard of it for its timeout,
by their own clock, and its nodes with it, at once. Outcomes are values, or the errors that
`distlock.engine.errors` names. A stat is kazoo's ``ZnodeStat``, of which the code above reads
``czxid`` (the fencing token: it rises with each transaction that creates), ``mzxid``, ``version``,
``aversion``, ``ctime``, ``mtime`` (milliseconds of the servers' clock), ``ephemeralOwner`` (the
session's id, 0 for none) and ``numChildren``.

- *Everything happens on one thread for each client, the connection thread*: outcomes come in the
  order of the requests, and the event of a watch comes between the outcomes where the change was
  (ZooKeeper's Programmer's Guide, "ZooKeeper Watches"; the push messages of RESP3; answers of
  PostgreSQL bring the events).
- *No callback may block.* None ever runs in the thread of a caller.
- *A lost connection* is reported first; then all that was asked fails with `ConnectionLost`, and
  watches report ``changed(False)``. The session and its nodes outlive it until the timeout. The
  servers carry requests out before the first `proof` by a write over the next connection, or never.

Where each engine keeps the promises of requests: ``requests``, ``tree.lua`` and ``tree.sql``; those
of the connection: ``client``, `own_client`, `serving`, and, of ZooKeeper, ``connection``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterator

    from django.core.checks import CheckMessage

    from .deadline import SessionDeadline
    from .reply import Reply

#: The node ends with its session.
EPHEMERAL: Final = 1
#: The server adds a number of ten digits to the name, which rises under each parent.
SEQUENTIAL: Final = 2
#: The server removes the node some time after its last child has gone.
CONTAINER: Final = 4


class Requests(Protocol):
    """Makes the requests that a client sends; what they are is the engine's matter."""

    def node(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        """Create a node below one that exists; answers (path, stat).

        :param flags: the sum of `EPHEMERAL`, `SEQUENTIAL` and `CONTAINER`; an ephemeral node has no
            children
        """

    def deletion(self, path: str, version: int = -1) -> Any:
        """Delete a node that has no children, if it has this version, -1 for any."""

    def writing(self, path: str, data: bytes, version: int) -> Any:
        """Replace a node's data if it has this version, -1 for any; answers the stat."""

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        """Read a node; answers (data, stat).

        :param changed: called once, at its next change, with whether it was deleted; and with False
            when the connection, and the watch with it, is lost
        """

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        """List the names of the children; `changed` is called when one comes or goes."""

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        """Remove this connection's watches on a node's data, or on the names of its children."""

    def multi(self, steps: list[Any]) -> Any:
        """Carry out all steps or none; answers the list of their outcomes, of a node its path.

        :param steps: requests of `node`, without `CONTAINER`, `deletion`, `writing`, `presence`
        """

    def presence(self, path: str) -> Any:
        """Require that the node exists; a step of a `multi`."""

    def proof(self, path: str, *, by_write: bool) -> Any:
        """Ask for an answer that only a server gives which keeps the session alive.

        `errors.refusal` reads it. Source: `engine.deadline`, of Redis ``ping`` in ``tree.lua``.

        :param path: a node that may exist
        :param by_write: whether a server that may have been deposed must not answer either; reads
            that follow see all that was acknowledged to anybody before
        """


class EngineClient(Requests, Protocol):
    """One connection that keeps itself up, and its session of the moment.

    `Engine.client` makes it.
    """

    #: Whether it will never connect again.
    stopped: bool
    #: Whether it stays without a connection, as tests may want.
    cut_off: bool
    #: The connection thread calls these as soon as it is awake.
    steps: deque[Callable[[], None]]
    #: Until when the session lives. The session renews it; the client of an engine whose servers
    #: answer for one another also tells it of connections and pings.
    deadline: SessionDeadline

    @property
    def credentials(self) -> tuple[int, bytes]:
        """The session's id and its password: whoever has both can end it."""

    @property
    def reason(self) -> str:
        """Why there is no connection, in a few words."""

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server granted, in seconds; 0 before the first session."""

    @property
    def renewed_at(self) -> float | None:
        """When the last request was sent that has renewed the session; None if a create does."""

    @property
    def tells_the_rest(self) -> bool:
        """Whether the list that follows the event of a deletion is answered by that event."""

    @property
    def server(self) -> str:
        """Host and port of the server that it is connected to, empty without a connection."""

    @property
    def trouble(self) -> BaseException | None:
        """The reason why it cannot connect, if one is known."""

    def connect(self) -> None:
        """Begin to connect, and stay connected until `say_goodbye`; does not block.

        It carries the session on as long as the servers have it, and begins another one after that.
        """

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
        """Drop the callbacks of watches that `unwatching` has removed; on the connection thread."""

    def explain(self, error: BaseException | None, away: str = "") -> str:
        """Return what a user should read when the server answered `error`, or None for nothing.

        :param away: the reason why there is no connection, if there is none
        """

    def say_goodbye(self, seconds: float) -> bool:
        """End the session; return whether the server has said in time that it is over."""


# --- an engine -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One alias of ``DISTLOCK``, checked. Times are seconds; see docs/reference/settings.md."""

    alias: str = "default"
    #: A URL may hold a password.
    hosts: str = field(default="127.0.0.1:2181", repr=False)
    namespace: str = "/distlock"
    key_prefix: str = ""
    timeout: float | None = 5.0
    session_timeout: float = 10.0
    connect_timeout: float = 3.0
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    acl: Any = field(default="open", repr=False)
    tls: Mapping[str, Any] | None = field(default=None, repr=False)
    in_transaction: str = "raise"
    busy_status: int = 423
    retry_after: float = 1.0
    node_data: str = "full"
    label: str = "route"
    deadlock_after: float | None = 3.0
    held_long: float | str | None = "usual"
    waited_long: float | None = 30.0
    strict: bool = False
    max_node_bytes: int = 750_000
    history: int = 0
    history_slow: float = 1.0
    replicas: int = 0
    beside: str | None = None


class Settings(Protocol):
    """The module ``settings`` of an engine: the settings it has.

    It imports nothing that the engine needs installed, and never connects.
    """

    #: How messages name the engine.
    NAME: str
    #: The form of its ``HOSTS``, in words with an example.
    EXAMPLE: str
    #: Of each setting that only this engine has: whether a value is right, and what it should be.
    RULES: Mapping[str, tuple[Any, str]]
    #: Of each setting that means nothing to it: what to do instead.
    UNKNOWN: Mapping[str, str]

    def mistake_in(self, hosts: Any) -> str | None:
        """Return what is wrong with ``HOSTS``, in words that show no password, or None."""

    def problems(self, where: str, options: Mapping[Any, Any]) -> Iterator[CheckMessage]:
        """Yield what else is wrong with the options of an alias, of which each value is right.

        :param where: how messages name the alias
        """

    def problems_in_deployment(
        self, where: str, options: Mapping[Any, Any]
    ) -> Iterator[CheckMessage]:
        """Yield what makes the options unfit for the internet (``check --deploy``)."""

    def chroot(self, hosts: str) -> str:
        """Return the path that ``HOSTS`` puts before the namespace, empty for none."""


class Finding(NamedTuple):
    """The result of a look of `doctor`: ``warning`` can be better, with ``error`` no lock works."""

    level: Literal["ok", "warning", "error"]
    subject: str
    message: str
    advice: str = ""


ok: Final = partial(Finding, "ok")
warning: Final = partial(Finding, "warning")
failure: Final = partial(Finding, "error")


class Engine(Protocol):
    """The module ``engine`` of an engine."""

    #: Makes the library's own client on the session of ours, given that and the settings, on the
    #: connection thread; None where that cannot be.
    lend: Any

    def client(self, conf: Configuration, changed: Callable[[bool, int], None]) -> EngineClient:
        """Return a new client, which does not connect yet.

        :param changed: called on the connection thread when a connection came (True) or went
            (False), with the id of the session, 0 for none
        """

    def report(self, conf: Configuration, session_id: int, password: bytes) -> dict[str, Any]:
        """Return the facts that `session_reaper.end_session` needs to end a session."""

    def shown(self, conf: Configuration) -> str:
        """Return ``HOSTS`` without credentials."""

    def servers(self, conf: Configuration, timeout: float) -> tuple[bool, list[Finding]]:
        """Look at the servers for `doctor`; return whether one can be reached, and the findings."""

    def looks(self, conf: Configuration, timeout: float, seconds: float) -> Iterator[Finding]:
        """Yield what else `doctor` should know, once there is a session.

        :param timeout: the session timeout that was granted, in seconds
        :param seconds: the time for all looks
        """

    def advice(self, conf: Configuration, right: str) -> str:
        """Return what to do where this user may not ``create``, ``read``, ``write``, ``delete``."""
