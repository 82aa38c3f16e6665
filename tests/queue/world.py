"""A server, two processes and three contenders: everything around `distlock.queue.machine`.

The contenders are the real machine. The rest is a model: a server with sequence numbers, ephemeral
nodes, watches and sessions; and of each process the session, as the driver promises it in the
docstring of `machine`. A world never changes; a step (`tests.queue.steps`) copies what it touches.

Each connection has a queue of requests, which the server carries out in order. An answer arrives at
once, unless the connection is *doomed*: then requests are still carried out and their answers are
lost, until the process notices that the connection is gone. A *deposed* leader shows what it knew,
answers a ``sync``, and never a write. Answers that travel for a while need no
steps of their own: what a client does meanwhile (leave, time out, send) neither depends on what
other clients do nor is seen by them before its requests are carried out, which are behind the
answered one in the same queue. So it may as well be done before that one is carried out.
`World.slow` has answers that travel all the same, to check this argument; it takes far longer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.queue import events as e
from distlock.queue.local_line import Local, LocalLine
from distlock.queue.machine import Machine
from distlock.queue.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from distlock.queue.policies import Policy

NAMES = "ABCD"
#: Attributes of a contender for messages only: they decide nothing.
REPORTED = frozenset({"ahead", "seen", "head", "before", "_effects", "_do"})
#: Attributes that belong to the process, and those that never change.
BOUND = frozenset({"local", "new_prefix", "session"})
FIXED = frozenset({"me", "policy", "revocable", "max_waiters"})
COPIED = tuple(name for name in Machine.__slots__ if name not in BOUND)
KEY = tuple(name for name in COPIED if name not in FIXED | REPORTED)
#: The states that no event of the server leads out of.
AT_REST = frozenset({State.NEW, State.BUSY, State.HOLDING, State.LOST, State.REFUSED, State.LEFT})
#: The states in which it may have a node that it does not know yet.
UNSURE = frozenset({State.JOINING, State.FINDING, State.IDENTIFYING})


def node_of(name: str, token: int, session_id: int) -> e.Node:
    """Return a node with the number that is in its name."""
    return e.Node(name, token, session_id, e.number_in(name))


class Wrong(Exception):
    """A step has led to what must never be."""


class Server(NamedTuple):
    """The line on the server."""

    #: The czxid of the line's own node, 0 while there is none.
    line: int = 1
    number: int = 0
    zxid: int = 1
    #: The nodes as (name, session id, czxid), in their order.
    nodes: tuple[tuple[str, int, int], ...] = ()
    #: The watches: (process, name).
    watches: frozenset[tuple[int, str]] = frozenset()
    #: The expired sessions whose nodes are still there.
    ghosts: frozenset[int] = frozenset()
    sessions: int = 2
    #: The names of the nodes that an operator has deleted.
    broken: frozenset[str] = frozenset()
    #: The names of the nodes whose owners were asked to leave.
    asked: frozenset[str] = frozenset()
    #: The highest tokens that were granted: to one alone, and to one who shares.
    alone: int = 0
    together: int = 0
    #: The data of a semaphore's permits, its version, and the highest limit there was.
    limit: bytes = b""
    version: int = 0
    most: int = 0
    #: Whether there is the node of a semaphore's permits, and the limit that is kept beside it.
    permits: bool = False
    kept: bytes = b""

    def has(self, name: str) -> bool:
        return any(node[0] == name for node in self.nodes)


class Faults(NamedTuple):
    """How often each fault may still happen."""

    #: A connection is lost.
    cuts: int = 0
    #: The session deadline of a process passes.
    lapses: int = 0
    #: The server expires a session whose deadline has passed.
    expiries: int = 0
    #: An operator deletes a node.
    breaks: int = 0
    #: An operator removes the line, or the server does when it is empty.
    removals: int = 0
    #: The owner of a node is asked to leave: its data is changed.
    touches: int = 0
    #: An exception lands in a join.
    interrupts: int = 0
    #: A caller gives up before it has the lock.
    leaves: int = 3
    #: A caller sends the delete itself, before its release is applied.
    releases: int = 3
    #: A heartbeat comes while the session deadline is running.
    beats: int = 0
    #: A semaphore gets another limit.
    limits: int = 0
    #: One transaction removes the line, makes it again, and uses up all of its numbers but one.
    renewals: int = 0
    #: A connection goes to a deposed leader.
    deposed: int = 0
    #: A caller holds the lock for longer than it may.
    overstays: int = 0
    #: A caller looks, and finds that its node is gone.
    looks: int = 0


class Caller(NamedTuple):
    """The deeds of a contender's caller."""

    left: bool = False
    #: It has sent the delete itself, and `Leave` is not applied yet.
    posted: bool = False
    #: An exception has landed in its join.
    interrupted: bool = False
    #: The session deadline has passed while it held the lock.
    lapsed: bool = False
    #: It was told that it has lost the lock, and the contender is not the one who said so.
    lost: bool = False
    #: The event with this news, until the contender hears of it.
    news: Any = None
    #: The epoch of the grant that its neighbour has handed over, until the contender hears of it.
    given: int | None = None


class Process:
    """A process: its session, which is also the contenders' `SessionView`."""

    __slots__ = (
        "_key",
        "answers",
        "callers",
        "connected",
        "contenders",
        "deletes",
        "deposed",
        "doomed",
        "epoch",
        "expired",
        "far",
        "id",
        "lag",
        "local",
        "number",
        "offers",
        "requests",
        "running",
        "sweeps",
        "unseen",
        "watchers",
    )

    #: How many requests a join sends at once.
    first_requests = 2

    def __init__(self, number: int, contenders: Sequence[int]) -> None:
        self.number = number
        self.far = False
        self.id = number + 1
        self.connected = True
        self.doomed = self.expired = self.deposed = False
        self.running = True
        self.epoch = 1
        self.requests: tuple[Any, ...] = ()
        self.answers: tuple[Any, ...] = ()
        self.deletes: tuple[tuple[str, int], ...] = ()
        self.sweeps: tuple[e.Sweep, ...] = ()
        self.watchers: frozenset[tuple[str, int]] = frozenset()
        #: The nodes whose creation was not answered, and those that our server does not show yet.
        self.unseen: tuple[str, ...] = ()
        self.lag: tuple[str, ...] = ()
        self.local = LocalLine()
        #: The offers of the lock: (from, to), until either hears of it.
        self.offers: frozenset[tuple[int, int]] = frozenset()
        self.contenders: dict[int, Machine] = {}
        self.callers = dict.fromkeys(contenders, Caller())
        self._key: Any = None

    @property
    def deadline(self) -> Process:
        """The session deadline, which has its attributes here."""
        return self

    def unbroken(self, epoch: int) -> bool:
        return self.running and self.epoch == epoch

    def copy(self) -> Process:
        new = object.__new__(type(self))
        _copy_process(self, new)
        new.local = LocalLine(_copied(self.local.nodes), self.local.lines.copy())
        new.callers = self.callers.copy()
        new.contenders = {n: new.clone(contender) for n, contender in self.contenders.items()}
        new.bind()
        new._key = None
        return new

    def bind(self) -> None:
        """Put the contenders that are downgraded in the place of the writer, contender 0."""
        for contender in self.contenders.values():
            if contender.policy.spot is not None:
                contender.policy = replace(contender.policy, spot=self.contenders[0])

    @property
    def key(self) -> Any:
        """A value that no different process has."""
        if self._key is None:
            self._key = (
                *_plain(self),
                *sorted((key, *_of_local(local)) for key, local in self.local.nodes.items()),
                *self.local.lines.values(),
                *self.callers.values(),
                *map(self.decides, self.contenders.values()),
            )
        return self._key

    def would_watch(self, contender: Machine) -> bool:
        """Whether a contender would set a watch on its own node at the next heartbeat."""
        return not contender._own_watched and (
            contender.state in (State.HOLDING, State.BEHIND)
            or (contender.state is State.WAITING and contender._only)
        )

    def clone(self, contender: Machine) -> Machine:
        """Return a copy of a contender of another copy of this process."""
        return clone(contender, self)

    def decides(self, contender: Machine) -> Any:
        """Return a value that no different contender has."""
        return _decides(contender)

    def forget(self, name: str) -> None:
        """Take note that the deletion of a node is acknowledged."""
        self.local.forget(name)

    def valid(self, number: int) -> bool:
        """Whether the grant of a contender stands, or that which its caller was handed."""
        contender, given = self.contenders[number], self.callers[number].given
        if given is None:
            return contender.valid
        return self.unbroken(given) and contender.standing

    def holds(self, number: int) -> bool:
        """Whether a caller may rely on having the lock."""
        caller = self.callers[number]
        return self.valid(number) and not (caller.left or caller.lost)

    def has_answer(self, number: int) -> bool:
        """Whether a caller has the lock, or was told that it does not get it."""
        return self.contenders[number].state in AT_REST or self.callers[number].given is not None

    def names_of(self, contender: Machine) -> list[str]:
        """Return the names of the nodes by which a contender holds."""
        assert contender.node is not None
        return [contender.node.name]

    def note_grant(self, world: World, contender: Machine) -> None:
        """Raise if this grant is wrong."""
        node, server = contender.node, world.server
        assert node is not None
        if not self.valid(NAMES.index(name_of(contender))):
            raise Wrong(f"{name_of(contender)} is granted what is lost already")
        if any(name == node.name and owner != self.id for name, owner, _ in server.nodes):
            raise Wrong(f"{name_of(contender)} is granted on a node of an earlier session")
        if node.name in server.broken or contender.policy.spot is not None:
            return  # the watch on it says so in a moment; or the token is the writer's
        shared = contender.policy.shared
        if node.token <= (server.alone if shared else max(server.alone, server.together)):
            raise Wrong(f"the token {node.token} is granted after {server.alone}")
        if shared:
            world.server = server._replace(together=max(server.together, node.token))
        else:
            world.server = server._replace(alone=node.token)


_PLAIN = tuple(
    name for name in Process.__slots__ if name not in ("local", "contenders", "callers", "_key")
)


def _copier(names: Iterable[str]) -> Callable[[Any, Any], None]:
    """Return what copies these attributes from one object to another, as fast as it can be."""
    body = "".join(f"    new.{name} = old.{name}\n" for name in names)
    scope: dict[str, Any] = {}
    exec(f"def copy(old, new):\n{body}", scope)  # noqa: S102 - millions of copies are made
    copier: Callable[[Any, Any], None] = scope["copy"]
    return copier


def _copied(nodes: dict[tuple[str, int], Local]) -> dict[tuple[str, int], Local]:
    """Return a copy of the nodes of a line."""
    copies = {}
    for key, local in nodes.items():
        copies[key] = copy = object.__new__(Local)
        _copy_local(local, copy)
    return copies


_plain = attrgetter(*_PLAIN)
_of_local = attrgetter(*Local.__slots__)
_copy_local = _copier(Local.__slots__)
_decides = attrgetter(*KEY)
_copy_process = _copier(_PLAIN)
_copy_contender = _copier(COPIED)


def clone(contender: Machine, process: Process) -> Machine:
    """Return a copy of a contender for a copy of its process."""
    new = object.__new__(type(contender))
    _copy_contender(contender, new)
    new.session = process
    new.local = process.local
    new.new_prefix = partial(next_prefix, new)
    return new


def next_prefix(contender: Machine) -> str:
    """Return the prefix of a contender's next attempt."""
    attempt = int(contender.prefix[4]) + 1 if contender.prefix else 1
    return f"_c_{name_of(contender)}{attempt}-"


def name_of(contender: Machine) -> str:
    """Return the letter of a contender."""
    assert isinstance(contender.me, int)
    return NAMES[contender.me]


class World:
    """All of it."""

    __slots__ = ("_fresh", "faults", "processes", "server", "slow", "wrong")

    def __init__(
        self, server: Server, processes: list[Process], faults: Faults, *, slow: bool
    ) -> None:
        self.server = server
        self.processes = processes
        self.faults = faults
        self.slow = slow
        #: The fault of the step that led here.
        self.wrong = ""
        self._fresh: set[int] = set()

    def copy(self) -> World:
        """Return a world that a step may change, by `own`."""
        return World(self.server, list(self.processes), self.faults, slow=self.slow)

    def own(self, number: int) -> Process:
        """Return a process that may be changed in this world only."""
        if number not in self._fresh:
            self._fresh.add(number)
            self.processes[number] = self.processes[number].copy()
        return self.processes[number]

    @property
    def key(self) -> Any:
        """A value that no different world has."""
        return (self.server, self.faults, *(process.key for process in self.processes))

    def spend(self, fault: str) -> None:
        """Note that a fault has happened."""
        self.faults = self.faults._replace(**{fault: getattr(self.faults, fault) - 1})

    def contenders(self) -> list[tuple[Process, int, Machine]]:
        return [
            (process, number, contender)
            for process in self.processes
            for number, contender in process.contenders.items()
        ]


def beginning(
    policies: Sequence[Policy],
    faults: Faults,
    *,
    homes: Sequence[int] = (0, 0, 1),
    machine: type[Machine] = Machine,
    line: bool = True,
    begins_at: int = 0,
    slow: bool = False,
    try_only: Sequence[int] = (),
    far: bool = False,
    revocable: bool = False,
) -> World:
    """Return the world in which nobody has joined.

    :param policies: of each contender
    :param homes: the number of each contender's process
    :param line: whether the line's own node is there
    :param begins_at: the first number that it gives
    :param try_only: the contenders that do not wait
    :param far: whether the links are long
    :param revocable: whether the contenders watch for the request to leave
    """
    processes = []
    for number in range(max(homes) + 1):
        inside = [n for n, home in enumerate(homes) if home == number]
        process = Process(number, inside)
        process.far = far
        for n in inside:
            options: dict[str, Any] = {"me": n, "revocable": revocable}
            if n in try_only:
                options["max_waiters"] = 0
            contender = machine(policies[n], process, process.local, **options)
            contender.new_prefix = partial(next_prefix, contender)
            process.contenders[n] = contender
        process.bind()
        processes.append(process)
    sessions = len(processes)
    server = Server(line=1 if line else 0, number=begins_at, sessions=sessions)
    return World(server, processes, faults, slow=slow)
