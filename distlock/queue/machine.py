"""A contender in the wait queue as a state machine: events in, effects out, and no I/O.

`Machine.apply` takes an event and returns the effects: what to send to the server, what to tell
the caller (`events`). `states` has the table of what happens in which state. Here is no thread,
clock, socket or lock, so `tests.queue.explore` takes every order in which events can come. The
driver is `distlock.contenders`.

A contender has one node at a time. `policies` says whom it waits for, and `local_line` knows the
other contenders of this process.

How it is safe:

- A node of an earlier session never counts: it may still be listed (CURATOR-498, -604).
- A grant needs a running session deadline. Without one, the list may come from a server that is cut
  off; so the session is proven first, and the line is listed again.
- *A neighbour* (`local_line`) has the number before ours in the same line, so nobody is between us.
  When it releases the lock we have it, without a watch and without asking the server. Both numbers
  are of one line if the line's own node is older than the neighbour's when ours is created. It is
  read and watched once for all of this process: a watch that has not fired before the answer to our
  create shows that nobody has removed the line, since the server tells us of each in its order
  (ZooKeeper's ``FinalRequestProcessor``, ``WatchManager.triggerWatch``). The distance between two
  transaction ids shows nothing: one transaction may begin the line anew and use up its numbers.
- *The only one ahead* was a mutex's node, and it is deleted: we are first. On a long link a
  contender also watches the one ahead of its predecessor. When that goes it lists the line, while
  its predecessor still holds the lock, and learns that there is no other: so one message hands the
  lock over, the event of the predecessor's deletion.
- In these two cases no list has shown that our own node is still there, so it is watched from the
  first heartbeat on, as a holder's is: an operator may break it.

The driver guarantees:

- The caller applies `Join` itself, before anybody else can see the contender, and sends the first
  requests. All later events are applied one after the other on the connection thread; a caller only
  posts them. Effects are carried out in order; `Tell` comes before any other event.
- Requests of one contender are answered in order, each once, and on the connection on which they
  were sent. `Disconnected` makes all of them void: no answer comes after it. It also comes for a
  contender that has joined on a connection that was lost meanwhile. A create that is carried out
  later all the same is deleted (an orphan).
- `Disconnected` ends all watches, and clears the `LocalLine`, before any contender hears of it.
- A watch is shared by the contenders of a process, and ends with its `Changed`, with `Unwatch`, or
  with an error in `Watched`.
- An *offer* is open while a contender is BEHIND its neighbour. The thread that releases the lock
  may take it, and the caller behind it has the lock at once. Or the connection thread takes it,
  before it applies any event to the contender behind. Only one of them gets it. If it was the
  other thread, `HandedOver` comes first; or else the offer is open again if the contender still
  waits.
- `List(sync=True)` is repeated until it is answered or `Leave` has come; of its errors only MISSING
  is an event.
- `Delete` and `Sweep` are repeated until they are done or the session is over. A release may send
  the delete from the calling thread before it posts `Leave`. When it is acknowledged,
  `LocalLine.forget` is called.
- `Leave` comes for every contender in the end, also where an exception landed while the first
  requests were being sent. Nothing comes after it.
- `Join.follows` may be wrong: it decides what is asked, not whose turn it is.
- A holder also compares the clock with the session deadline at each check; `Lapsed` only carries
  the news.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from distlock.keys import znodes

from . import events as e
from .policies import of_the_other_family, waiting_ahead
from .states import RULES, State, methods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from distlock.keys.znodes import NodeName

    from .events import Effect, Event, Node
    from .local_line import Local, LocalLine
    from .policies import Policy
    from .states import Rule


class DeadlineView(Protocol):
    """The session deadline as it is at the moment of an event; see `engine.deadline`."""

    @property
    def epoch(self) -> int: ...
    @property
    def running(self) -> bool: ...
    def unbroken(self, epoch: int) -> bool: ...


class SessionView(Protocol):
    """The session as it is at the moment of an event."""

    @property
    def id(self) -> int: ...
    @property
    def connected(self) -> bool: ...
    @property
    def far(self) -> bool: ...
    @property
    def deadline(self) -> DeadlineView: ...


class Machine:
    """One caller's way through the line.

    :param me: what `Tell` calls this contender
    :param max_waiters: be `Busy` where so many wait ahead when it comes; 0 does not wait
    :param revocable: watch for the request to leave
    :param new_prefix: returns a prefix for a node's name that nobody else has
    """

    __slots__ = (
        "_compatible",
        "_do",
        "_effects",
        "_line_error",
        "_only",
        "_own_watched",
        "_revoked",
        "_watched",
        "_watching",
        "_worn",
        "ahead",
        "before",
        "epoch",
        "follows",
        "head",
        "local",
        "max_waiters",
        "me",
        "new_prefix",
        "node",
        "policy",
        "prefix",
        "revocable",
        "seen",
        "session",
        "state",
    )
    #: The table of states, and by state and event the method that applies it.
    rules: ClassVar[Sequence[Rule]] = RULES
    _methods: ClassVar[list[dict[type, Callable[[Any, Any], None]]]]

    def __init__(
        self,
        policy: Policy,
        session: SessionView,
        local: LocalLine,
        *,
        me: Hashable,
        max_waiters: float = inf,
        revocable: bool = False,
        new_prefix: Callable[[], str] = znodes.protected_prefix,
    ) -> None:
        self.policy = policy
        self.session = session
        self.local = local
        self.me = me
        self.max_waiters = max_waiters
        self.revocable = revocable
        self.new_prefix = new_prefix
        self.state = State.NEW
        self.node: Node | None = None
        self.prefix = ""
        self.follows = False
        #: The session's epoch of the grant.
        self.epoch = 0
        #: How many were ahead at the last look; None until the line has been seen.
        self.ahead: int | None = None
        #: Whether the line has ever been seen.
        self.seen = False
        #: The name of the first in line at the last look.
        self.head = ""
        #: The contender of this process that was directly ahead at the last look.
        self.before: Hashable = None
        #: The name of the one ahead, which is watched or our neighbour.
        self._watched = ""
        #: The names of the others that it watches.
        self._watching: frozenset[str] = frozenset()
        #: Whether that was the only one ahead, and a mutex.
        self._only = False
        self._own_watched = False
        #: The version of our node that was the last request to leave.
        self._revoked = 0
        #: The last node of the other family that was read, and is distlock's.
        self._compatible = ""
        #: Whether the line is near the end of its numbers.
        self._worn = False
        self._line_error: e.Error = None
        #: The effects of the event that is being applied, and what adds one.
        self._effects: list[Effect] = []
        self._do: Callable[[Effect], None] = self._effects.append

    def apply(self, event: Event) -> Sequence[Effect]:
        """Apply an event and return what is to be done, in this order."""
        method = self._methods[self.state].get(type(event))
        if method is None:
            return ()
        effects = self._effects = []
        self._do = effects.append
        method(self, event)
        return effects

    @property
    def standing(self) -> bool:
        """Whether our node belongs to the session of now (CURATOR-604)."""
        return self.node is not None and self.node.session_id == self.session.id

    @property
    def valid(self) -> bool:
        """Whether we hold the lock, and the session has been alive all the time."""
        deadline = self.session.deadline
        return self.state is State.HOLDING and deadline.unbroken(self.epoch) and self.standing

    @property
    def head_is_worn(self) -> bool:
        """Whether we wait, without a node, for one who stays in a line that has to begin anew."""
        first = znodes.parse(self.head) if self.state is State.ASIDE and self._worn else None
        return first is not None and znodes.is_worn(first.sequence)

    def __init_subclass__(cls) -> None:
        cls._methods = methods_of(cls, State, cls.rules)

    # --- joining ---------------------------------------------------------------------------------

    def _join(self, event: e.Join) -> None:
        counts = self.max_waiters < inf  # those ahead, in a list
        self.follows = event.follows and self.policy.hands_over and not counts
        self._enter()

    def _enter(self, _: Event | None = None) -> None:
        """Create a node and list the line in one go: the server answers in order.

        A contender that follows another of us only creates: the answer often tells enough.
        """
        spot = self.policy.spot
        if spot is not None and not spot.valid:
            self._refuse(e.Why.WRITER_LOST)
            return
        if not self.session.connected:
            self.state = State.PARKED
            return
        prefix = self.prefix = self.new_prefix()
        self.state = State.JOINING  # not before: an exception may land here
        name = prefix + self.policy.kind
        if spot is None:
            self._do(e.Create(name))
        else:
            number = f"{spot.node.number:010d}" if spot.node else ""
            self._do(e.Create(name + number, sequential=False))
        if not self.follows:
            self._do(e.LIST)

    def _join_anew(self) -> None:
        if self.policy.queues:
            self.ahead = None
        self.follows = self._worn = False
        self._revoked = 0
        self._enter()

    def _start_anew(self) -> None:
        self._unwait()  # or else our own new node uses a watch up
        self._give_up_node()
        self._join_anew()

    def _created(self, event: e.Created) -> None:
        if event.node is not None:
            self._take(event.node)
            self.state = State.LOOKING
            if self.follows:
                self._find_neighbour(event.node)
        elif event.error is not e.Problem.MISSING:
            self._fail(event.error)
        elif self._line_error is not None:
            self._fail(self._line_error)
        else:  # the server removes an idle line, perhaps more than once
            self._do(e.MakeLine())
            self._enter()

    def _line_made(self, event: e.LineMade) -> None:
        self._line_error = event.error

    def _take(self, node: Node) -> None:
        spot = self.policy.spot
        if spot is not None and spot.node is not None:
            node = node._replace(token=spot.node.token)
        self.node = node
        if self.policy.hands_over:
            self.local.enter(node, self.me)
        if self.revocable:
            self._watch_own()

    # --- after a lost reply ----------------------------------------------------------------------

    def _lose_reply(self, _: e.Disconnected) -> None:
        self.state = State.FINDING

    def _find(self, _: e.Connected) -> None:
        # Behind a write: the server that we are on now may lag, or be a leader that was deposed.
        self._do(e.List(sync=True))

    def _found(self, event: e.Listed) -> None:
        name = next((name for name in event.names if name.startswith(self.prefix)), None)
        if name is None:
            self._join_anew()
        else:
            self.state = State.IDENTIFYING
            self._do(e.Read(name))

    def _identified(self, event: e.NodeRead) -> None:
        if event.node is not None:
            self._take(event.node)
            self._look()
        elif event.error is e.Problem.MISSING:
            self._join_anew()
        else:
            self._do(e.Delete(event.name, self.session.id))
            self._fail(event.error)

    # --- in line ---------------------------------------------------------------------------------

    def _look(self, _: Event | None = None) -> None:
        if not self.session.connected:
            self.state = State.LOOKING
        elif self.standing:
            self.state = State.LOOKING
            self._do(e.LIST)
        else:
            self._start_anew()

    def _listed(self, event: e.Listed) -> None:
        if event.error is None:
            self._see(event.names)
        elif event.error is e.Problem.MISSING:
            self._start_anew()
        else:
            self._fail(event.error)

    def _see(self, names: Sequence[str]) -> None:
        """Decide: our turn, or whom to wait for."""
        line = znodes.in_line(names)
        if len(line) < len(names):  # not all of them are contenders
            peer = next(filter(znodes.incompatible_recipe, names), None)
            if peer is not None:
                self._refuse(e.Why.INCOMPATIBLE, peer)
                return
        spot, node = self.policy.spot, self.node
        if spot is not None and not (spot.valid and spot.node and spot.node.name in names):
            self._refuse(e.Why.WRITER_LOST)  # an operator may have broken it
            return
        own = None
        for index, other in enumerate(line):
            if node is not None and other.name == node.name:
                own = index
        if own is None or not self.standing:
            self._start_anew()  # expired, or broken by an operator (CURATOR-211)
            return
        self.seen = True
        if znodes.is_worn(line[own].sequence):
            self._worn = True
            self._step_aside(line, own)
            return
        strange = of_the_other_family(line, own) if len(line) > 1 and spot is None else None
        if strange is not None and strange.name != self._compatible:
            self.state = State.JUDGING
            self._do(e.Read(strange.name))
            return
        self.head = line[0].name
        self.before = None
        blocking = None if spot is not None else self.policy.whom(line, own)
        if blocking is None:
            self._have_turn()
        else:
            self._wait_behind(line, own, blocking)

    def _judged(self, event: e.NodeRead) -> None:
        """Go on unless that node of the other family is Curator's, which does not wait for ours."""
        if event.error not in (None, e.Problem.MISSING):
            self._fail(event.error)
        elif event.error is None and znodes.is_peer(event.data):
            self._refuse(e.Why.INCOMPATIBLE, event.name)
        else:
            self._compatible = event.name
            self._look()

    def _have_turn(self) -> None:
        self.ahead = 0
        deadline = self.session.deadline
        if deadline.running:
            self._grant(deadline.epoch)
        else:
            self.state = State.PROVING
            self._do(e.Prove())

    def _grant(self, epoch: int) -> None:
        self.ahead = 0
        self.before = None
        self.epoch = epoch
        self.state = State.HOLDING
        self._do(e.GRANT)

    def _wait_behind(self, line: list[NodeName], own: int, blocking: NodeName) -> None:
        local = self.local.at(blocking.sequence) if self.policy.hands_over else None
        waiting = self._waiting_ahead(line, own)
        comes, self.ahead = not self.ahead, own
        if comes and waiting >= self.max_waiters:
            self._be_busy(waiting)
        elif not self.policy.queues:
            self._step_aside(line, own)
        elif local is not None and local.name == blocking.name:
            self._follow(blocking.sequence, local)
        else:
            mutex = self.policy.hands_over and blocking.kind == znodes.LOCK
            # Or else a cool-down may be there instead when it goes (`contenders.cool_down`).
            self._only = mutex and blocking is line[0] and znodes.COOLS not in blocking.name
            self.state = State.WAITING
            self._watch_ahead(blocking.name)
            if mutex and not self._only and self.session.far:
                name = line[own - 2].name
                self._watch(name, e.Watch(name))

    def _watch_ahead(self, name: str) -> None:
        self._watched = name
        self._watch(name, e.Watch(name))

    def _watch(self, name: str, effect: Effect) -> None:
        if name not in self._watching:
            self._watching |= {name}
            self._do(effect)

    def _waiting_ahead(self, line: list[NodeName], own: int) -> float:
        return waiting_ahead(line, own)

    def _be_busy(self, waiting: float) -> None:
        self.state = State.BUSY
        self._do(e.Busy(int(waiting)))

    def _ahead_changed(self, event: e.Changed) -> None:
        """Look again, whatever happened: the one ahead may have given up in the middle."""
        if event.name not in self._watching:
            self._own_changed(event)
            return
        self._watching -= {event.name}
        if event.deleted and self._only and self.standing:
            self._have_turn()
        else:
            self._look()

    def _ahead_watched(self, event: e.Watched) -> None:
        if event.name not in self._watching:
            self._own_read(event)
        elif event.error is e.Problem.MISSING:
            self._watching -= {event.name}
            self._look()
        elif event.error is not None:
            self._fail(event.error)

    # --- neighbours ------------------------------------------------------------------------------

    def _find_neighbour(self, node: Node) -> None:
        """Wait behind the neighbour with the number before ours, if it is in this very line."""
        local = None if znodes.is_worn(node.number) else self.local.at(node.number - 1)
        if local is None:
            self._look()
        elif self.local.is_current(local):
            self._stand_behind(node, local)
        else:
            self.state = State.READING_LINE
            self._do(e.WATCH_LINE)

    def _line_read(self, event: e.LineRead) -> None:
        node = self.node
        local = self.local.at(node.number - 1) if node else None
        if (
            node
            and local
            and event.error is None
            and event.token < local.token
            and local.follower is None  # or that one has listed the line, and we are not in it
        ):
            self._stand_behind(node, local)
        else:
            self._look()

    def _stand_behind(self, node: Node, local: Local) -> None:
        self.seen = True
        self.ahead = 1  # at least
        self._follow(node.number - 1, local)

    def _follow(self, number: int, local: Local) -> None:
        self.state = State.BEHIND
        self.before = local.contender
        self._watched = local.name
        if local.released is None:
            local.follower = self.me
        else:
            self.local.take(number)
            self._neighbour_left(e.NeighbourLeft(local.name, local.released))

    def _neighbour_left(self, event: e.NeighbourLeft) -> None:
        if event.name != self._watched:
            return
        if event.epoch is not None and self._continues(event.epoch):
            self._grant(event.epoch)
        else:
            self._look()

    def _handed_over(self, event: e.HandedOver) -> None:
        self._grant(event.epoch)

    def _continues(self, epoch: int) -> bool:
        """Whether a grant of this epoch can go on with our node."""
        return self.session.deadline.unbroken(epoch) and self.standing

    def _give_up_node(self, epoch: int | None = None) -> None:
        """Delete our node, and tell the neighbour behind it; with an epoch, it has the lock."""
        node, self.node = self.node, None
        if node is None:
            return
        self._own_watched = False
        self._do(e.Delete(node.name, node.session_id))
        if self.policy.hands_over:
            self._part(node, epoch)

    def _part(self, node: Node, epoch: int | None) -> None:
        follower = self.local.leave(node, epoch)
        if follower is not None:
            self._do(e.Tell(follower, e.NeighbourLeft(node.name, epoch)))

    # --- our own node ----------------------------------------------------------------------------

    def _renewed(self, _: e.Renewed) -> None:
        """Watch our own node where no list shows it: an operator may break it."""
        if self.state is not State.WAITING or self._only:
            self._watch_own()

    def _watch_own(self) -> None:
        if self.node is not None and not self._own_watched:
            self._own_watched = True
            self._do(e.Watch(self.node.name))

    def _own_changed(self, event: e.Changed) -> None:
        if self.node is None or event.name != self.node.name:
            self._watching -= {event.name}
            return
        self._own_watched = False
        if event.deleted:
            self._own_gone()
        else:
            self._watch_own()

    def _own_read(self, event: e.Watched) -> None:
        if self.node is None or event.name != self.node.name:
            if event.error is not None:  # it was not set
                self._watching -= {event.name}
            return
        if event.error is not None:
            self._own_watched = False
            if event.error is e.Problem.MISSING:
                self._own_gone()
        elif self.revocable and event.version != self._revoked and znodes.asks_to_leave(event.data):
            self._revoked = event.version
            self._do(e.Revoke())

    def _own_gone(self) -> None:
        """An operator has broken our node; a list that is under way shows it."""
        if self.state is State.HOLDING:
            self._give_up(e.GiveUp("broken"))
        elif self.state in (State.WAITING, State.BEHIND):
            self._start_anew()

    # --- granted ---------------------------------------------------------------------------------

    def _check(self, _: Event) -> None:
        if not self.valid:
            self._lose("session")
        elif self.revocable and self.session.connected:
            self._watch_own()

    def _give_up(self, event: e.GiveUp) -> None:
        """Lose the grant first, and then delete the node: a failover may bring a broken one back.

        Also where it was lost before: nobody waits for the caller any more.
        """
        if self.state is State.HOLDING:
            self._lose(event.reason)
        if self.node is not None:
            self._do(e.Delete(self.node.name, self.node.session_id))

    def _lose(self, reason: e.Reason) -> None:
        self.state = State.LOST
        self._do(e.Lose(reason))
        if self.node is not None and self.policy.hands_over:
            self._part(self.node, None)  # who waits behind a lost lock looks for itself

    # --- the connection --------------------------------------------------------------------------

    def _disconnected(self, _: e.Disconnected) -> None:
        """Forget what was under way; `Connected` goes on from here."""
        self._own_watched = False
        self._watching = frozenset()
        if self.state is not State.HOLDING:
            self.state = State.LOOKING

    def _disconnected_aside(self, _: e.Disconnected) -> None:
        self._watching = frozenset()
        self.state = State.PEEKING

    def _connected(self, _: e.Connected) -> None:
        self._look()
        if self.revocable:
            self._watch_own()

    # --- leaving ---------------------------------------------------------------------------------

    def _leave(self, _: e.Leave) -> None:
        epoch = self.epoch if self.valid else None
        if self._watching or self.state is State.BEHIND:
            self._unwait()
        self.state = State.LEFT
        self._give_up_node(epoch)

    def _unwait(self) -> None:
        for name in sorted(self._watching):
            self._do(e.Unwatch(name))
        self._watching = frozenset()
        if self.state is State.BEHIND:
            self.local.unfollow(self._watched, self.me)

    def _leave_unanswered(self, _: e.Leave) -> None:
        self.state = State.LEFT
        self._do(e.Sweep(self.prefix))

    # --- without a node --------------------------------------------------------------------------

    def _step_aside(self, line: list[NodeName], own: int) -> None:
        """Give the node up, and wait until nobody is in the line.

        It joins again only where it sees an empty line. The next one to join that is first, so one
        of a crowd always is. If they joined at once, each could find the node of another who is
        just about to leave, and leave for that, over and over.
        """
        self._unwait()
        self._give_up_node()
        self._wait_aside(line[:own] + line[own + 1 :])

    def _wait_aside(self, line: list[NodeName]) -> None:
        if line:
            self.head = line[0].name
            self.ahead = self.ahead or len(line)
            if not self.max_waiters:
                self._be_busy(len(line) - 1)
            else:
                self.state = State.ASIDE
                self._watch_ahead(self.head)
        elif self._worn:
            self.state = State.CLEARING
            self._do(e.ReadLine())
        else:
            self._join_anew()

    def _first_changed(self, event: e.Changed) -> None:
        self._watching -= {event.name}
        if event.name == self._watched:
            self._peek()

    def _first_watched(self, event: e.Watched) -> None:
        if event.name != self._watched or event.error is None:
            return
        self._watching -= {event.name}  # it was not set
        if event.error is e.Problem.MISSING:
            self._peek()
        else:
            self._fail(event.error)

    def _peek(self, _: Event | None = None) -> None:
        self.state = State.PEEKING
        if self.session.connected:
            self._do(e.List())

    def _peeked(self, event: e.Listed) -> None:
        if event.error is None:
            self._wait_aside(znodes.in_line(event.names))
        elif event.error is e.Problem.MISSING:
            self._join_anew()
        else:
            self._fail(event.error)

    def _clear(self, event: e.LineRead) -> None:
        """Remove the line, whose numbers begin at 0 again then, unless it is more than a line."""
        if event.error is e.Problem.MISSING:
            self._join_anew()
        elif event.error is not None:
            self._fail(event.error)
        elif not event.plain:
            self._refuse(e.Why.NOT_REMOVABLE)
        else:
            self._do(e.RemoveLine(event.version))

    def _cleared(self, event: e.LineRemoved) -> None:
        if event.error is e.Problem.NOT_EMPTY:  # somebody has joined it meanwhile
            self._peek()
        elif event.error in (None, e.Problem.MISSING):
            self._join_anew()
        else:
            self._fail(event.error)

    # --- refused ---------------------------------------------------------------------------------

    def _fail(self, error: e.Error) -> None:
        self._refuse(e.Why.ERROR, error if isinstance(error, BaseException) else None)

    def _refuse(self, why: e.Why, about: BaseException | str | None = None) -> None:
        self.state = State.REFUSED
        self._do(e.Refuse(why, about))


Machine.__init_subclass__()  # as each subclass, which has methods of its own
