"""The part of a contender that has no node: how it gets one, through every lost reply.

`machine` has the rest, and tells what all of it is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from distlock.keys import znodes

from . import events as e
from .states import State, methods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from distlock.keys.znodes import NodeName

    from .events import Effect, Event, Node
    from .local_line import LocalLine
    from .policies import Policy


class DeadlineView(Protocol):
    """The session deadline as it is at the moment of an event."""

    @property
    def epoch(self) -> int:
        """The number of the period in which it has been running."""

    @property
    def running(self) -> bool:
        """Whether it has not passed."""

    def unbroken(self, epoch: int) -> bool:
        """Whether it has been running since this epoch began."""


class SessionView(Protocol):
    """The session as it is at the moment of an event."""

    @property
    def id(self) -> int:
        """The id of the session."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""

    @property
    def deadline(self) -> DeadlineView:
        """The session deadline: until then the server keeps the session."""


class Joining:
    """A contender as far as it is not in line.

    :param me: what `Tell` calls this contender
    :param try_only: be `Busy` as soon as somebody is ahead
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
        "_worn",
        "ahead",
        "before",
        "epoch",
        "follows",
        "head",
        "local",
        "me",
        "new_prefix",
        "node",
        "policy",
        "prefix",
        "revocable",
        "seen",
        "session",
        "state",
        "try_only",
    )
    #: By state and event: what applies it.
    _methods: ClassVar[list[dict[type, Callable[[Any, Any], None]]]]

    def __init__(
        self,
        policy: Policy,
        session: SessionView,
        local: LocalLine,
        *,
        me: Hashable,
        try_only: bool = False,
        revocable: bool = False,
        new_prefix: Callable[[], str] = znodes.protected_prefix,
    ) -> None:
        self.policy = policy
        self.session = session
        self.local = local
        self.me = me
        self.try_only = try_only
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
        cls._methods = methods_of(cls)

    # --- joining ---------------------------------------------------------------------------------

    def _join(self, event: e.Join) -> None:
        self.follows = event.follows and self.policy.hands_over and not self.try_only
        self._enter()

    def _join_parked(self, _: e.Connected) -> None:
        self._enter()

    def _enter(self) -> None:
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
            number = znodes.sequence_of(spot.node.name) if spot.node else ""
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
        name = self._ours(event.names)
        if name is None:
            self._join_anew()
        else:
            self.state = State.IDENTIFYING
            self._do(e.Read(name))

    def _ours(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if name.startswith(self.prefix)), None)

    def _identified(self, event: e.NodeRead) -> None:
        if event.node is not None:
            self._take(event.node)
            self._look()
        elif event.error is e.Problem.MISSING:
            self._join_anew()
        else:
            self._do(e.Delete(event.name, self.session.id))
            self._fail(event.error)

    # --- after the caller has left ---------------------------------------------------------------

    def _leave_while_joining(self, event: e.Leave) -> None:
        if event.sure:
            self.state = State.LEAVING
        else:
            self.state = State.SEARCHING
            if self.session.connected:
                self._do(e.List(sync=True))

    def _search(self, _: Event) -> None:
        self.state = State.SEARCHING

    def _created_in_vain(self, event: e.Created) -> None:
        self.state = State.LEFT
        if event.node is not None:
            self._do(e.Delete(event.node.name, event.node.session_id))

    def _read_in_vain(self, event: e.NodeRead) -> None:
        self.state = State.LEFT
        self._do(e.Delete(event.name, self.session.id))

    def _found_in_vain(self, event: e.Listed) -> None:
        if not event.sync:
            return  # from before, and the create may still be under way
        self.state = State.LEFT
        name = self._ours(event.names)
        if name is not None:
            self._do(e.Delete(name, self.session.id))

    # --- without a node --------------------------------------------------------------------------

    def _step_aside(self, line: list[NodeName], own: int) -> None:
        """Give the node up, and wait until nobody is in the line.

        It joins again only where it sees an empty line. The next one to join that is first, so one
        of a crowd always is. If they joined at once, each could find the node of another who is
        just about to leave, and leave for that, over and over.
        """
        self._give_up_node()
        self._wait_aside(line[:own] + line[own + 1 :])

    def _wait_aside(self, line: list[NodeName]) -> None:
        if line:
            self.head = line[0].name
            self.ahead = self.ahead or len(line)
            if self.try_only:
                self._be_busy()
            else:
                self.state = State.ASIDE
                self._watch_ahead(self.head)
        elif self._worn:
            self.state = State.CLEARING
            self._do(e.ReadLine())
        else:
            self._join_anew()

    def _first_changed(self, event: e.Changed) -> None:
        if event.name == self._watched:
            self._peek()

    def _first_watched(self, event: e.Watched) -> None:
        if event.name != self._watched or event.error is None:
            return
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

    # --- in line: see `machine` ------------------------------------------------------------------

    def _look(self, _: Event | None = None) -> None:
        raise NotImplementedError

    def _find_neighbour(self, node: Node) -> None:
        raise NotImplementedError

    def _watch_ahead(self, name: str) -> None:
        raise NotImplementedError

    def _watch_own(self) -> None:
        raise NotImplementedError

    def _be_busy(self) -> None:
        raise NotImplementedError

    def _give_up_node(self, epoch: int | None = None) -> None:
        raise NotImplementedError
