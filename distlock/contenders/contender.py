"""Drives a contender of the wait queue: events go into its machine, and effects are carried out.

The caller's thread makes the contender, lets it join, and sends the first requests. Every later
event is applied on the connection thread, in order: answers, watches, changes of the connection,
and what a caller posts. So there is no lock, and no thread looks at what another one is changing.

An answer counts for the connection on which its request was made only. The session counts its
connections; a contender that has missed a change catches up before the next event.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from distlock.engine.client import ConnectionLost, NoNode, NotEmpty, SessionOver
from distlock.queue import events as e
from distlock.queue.local_line import LocalLine
from distlock.queue.machine import Machine
from distlock.queue.states import State

from . import answers
from .grant import Grant, Reason
from .refusals import refusal, worn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distlock.engine.client import Done
    from distlock.queue.policies import Policy
    from distlock.session.session import Session

#: For how long only clients that do not begin lines anew may keep us from doing so, in seconds.
WORN_SECONDS: Final = 1.0

#: The answer is void: the end of its connection is what happened.
_VOID: Final = ConnectionLost | SessionOver
_PROBLEMS: Final = {NoNode: e.Problem.MISSING, NotEmpty: e.Problem.NOT_EMPTY}
_LOSSES: Final[dict[Reason, Callable[[], e.Event]]] = {
    "session": e.Lapsed,
    "broken": e.FoundBroken,
    "max_hold": e.HeldTooLong,
}


class QueuedContender(Grant):
    """A caller's wait in the line under `path`, and its grant.

    :param policy: the kind of contender
    :param key: what is locked, for messages
    :param data: what the node says of its owner
    :param settled: called, from any thread, when it is granted, busy or refused
    :param try_only: settle as soon as somebody is ahead
    :param on_revoke: called on the connection thread each time somebody asks to leave
    """

    #: Whether a neighbour of this process waits for us.
    followed = False
    #: The name of the node that the caller deletes itself.
    _deleting = ""
    #: Whether it is known which of the first requests were sent.
    _sure = True
    #: Whether it hears of the session's connections.
    _attends = False
    #: Since when only worn nodes of others were seen first in the line.
    _worn_since: float | None = None

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        policy: Policy,
        key: str,
        data: bytes,
        settled: Callable[[], None],
        try_only: bool = False,
        on_revoke: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(session)
        self.path = path
        self.key = key
        self.kind = policy.kind
        self.shared = policy.shared and policy.spot is None  # which keeps the others out
        self.error: Exception | None = None
        #: How many were ahead at the last look; None until the line has been seen.
        self.ahead: int | None = None
        #: Whether the line has ever been seen, with this node or an earlier one.
        self.was_in_line = False
        #: When the server was last asked for a node (`time.monotonic`).
        self.asked_at = 0.0
        self._data = data
        self._settled = settled
        self._on_revoke = on_revoke
        #: The number of the connection that the machine knows of.
        self._connection = 0
        self._watchers: dict[str, Callable[[bool], None]] = {}
        self.machine = Machine(
            policy,
            session,
            LocalLine(session.local_nodes, path),
            me=self,
            try_only=try_only,
            revocable=on_revoke is not None,
        )

    # --- for the caller --------------------------------------------------------------------------

    def join(self) -> None:
        """Enter the line as soon as there is a connection; never blocks."""
        session, path = self.session, self.path
        session.heartbeat.attend(self)
        follows = path in session.newest
        session.newest[path] = self
        self._connection = session.connection
        self._sure = False
        effects = self.machine.apply(e.FOLLOW if follows else e.JOIN)
        if effects:
            self._carry_out(effects)
        else:
            session.soon(self._attend)
        self._sure = True

    def leave(self) -> None:
        """Give up, granted or not; the node is deleted for certain. May be repeated."""
        session, path = self.session, self.path
        if self.granted:
            self.lost  # noqa: B018 - settles it before the node goes
        self.left = True
        session.heartbeat.dismiss(self)
        if session.newest.get(path) is self:
            session.newest.pop(path, None)
        if self._worn_since is not None:
            self._refuse_worn_line(self._worn_since)
        node = self.node
        if node is None or self.followed:
            session.soon(self._leave)  # it also deletes the node
            return
        self._deleting = node.name
        gone = partial(self.machine.local.forget, node.name)
        delete = partial(session.deletes.delete, f"{path}/{node.name}", node.session_id, gone)
        try:
            session.post(self._leave)  # the answer to the delete wakes the connection thread
            delete()
        except BaseException:  # a soft time limit landed here
            session.soon(delete)
            raise

    @property
    def head(self) -> str:
        """The path of the first in line, as far as is known."""
        first = self
        while (before := first.before) is not None:
            first = before
        name = first.node.name if first.granted and first.node else first.head_seen
        return f"{self.path}/{name}" if name else ""

    @property
    def head_seen(self) -> str:
        """The name of the first in line at the last look."""
        return self.machine.head

    @property
    def before(self) -> QueuedContender | None:
        """The neighbour that we wait for."""
        neighbour = self.machine.neighbour
        return None if neighbour is None else cast("QueuedContender | None", neighbour.contender)

    def _lose(self, reason: Reason) -> None:
        if not (self._lost or self.left):
            super()._lose(reason)
            self.session.soon(partial(self.hear, _LOSSES[reason]()))

    def _give_up(self) -> None:
        self._lose("max_hold")

    def _refuse_worn_line(self, since: float) -> None:
        self._worn_since = None
        if time.monotonic() - since > WORN_SECONDS and self.error is None:
            self.error = worn(self.head, self.key)

    # --- events, on the connection thread --------------------------------------------------------

    def connection_changed(self) -> None:
        """Take note of a connection that was lost, or of a new one."""
        session = self.session
        if self._connection != session.connection:
            self._connection = session.connection
            self._watchers.clear()
            self._apply(e.Disconnected())
            if session.connected:
                self._apply(e.Connected())

    def deadline_renewed(self) -> None:
        """Watch the own node from the first heartbeat on: an operator may break the lock."""
        if self._attends:  # or else its caller may be applying `Join` now
            self.hear(e.Renewed())

    def _attend(self) -> None:
        """Hear of the session's connections from now on."""
        if self.left and self.machine.state is State.PARKED:
            return  # its caller has given up before there was one
        self._attends = True
        self.session.contenders.add(self)
        if self._connection != self.session.connection:
            self.connection_changed()

    def _leave(self) -> None:
        self._apply(e.LEAVE if self._sure else e.Leave(sure=False))
        if self.machine.state is not State.LEFT:  # it has to find its node first
            self._attend()

    def hear(self, event: e.Event) -> None:
        """Apply an event."""
        self.connection_changed()
        self._apply(event)

    def _apply(self, event: e.Event) -> None:
        machine = self.machine
        effects = machine.apply(event)
        self.ahead = machine.ahead
        if not self.left:
            self.node = machine.node
            self.was_in_line = self.was_in_line or machine.seen
        if len(effects) == 1:
            self._CARRIES_OUT[type(effects[0])](self, effects[0])
        elif effects:
            self._carry_out(effects)
        match machine.state:
            case State.BEHIND:
                if (before := self.before) is not None:
                    before.followed = True
                self._waits()
            case State.WAITING:
                self._waits()
            case State.ASIDE:
                if not machine.head_is_worn:
                    self._worn_since = None
                elif self._worn_since is None:
                    self._worn_since = time.monotonic()
                self._waits()
            case State.LEFT:
                self.session.contenders.discard(self)
                self._watchers.clear()
                machine.me = None  # they refer to each other

    def _waits(self) -> None:
        """Take note that somebody is ahead."""

    # --- answers ---------------------------------------------------------------------------------

    def _answer(self, event: Callable[[Any, e.Error], e.Event]) -> Done:
        """Return what takes the answer to a request that is made now.

        :param event: makes the event of a value and an error
        """
        return partial(self._answered, self._connection, event)

    def _answered(
        self,
        connection: int,
        event: Callable[[Any, e.Error], e.Event],
        value: Any,
        error: BaseException | None,
    ) -> None:
        if isinstance(error, _VOID):
            if not self._attends:  # the first answers; from any thread
                self.session.soon(self._attend)
        elif connection == self._connection:
            self._apply(event(value, error and _PROBLEMS.get(type(error), error)))

    def _created(self, connection: int, value: Any, error: BaseException | None) -> None:
        if error is not None:
            self._answered(connection, answers.not_created, value, error)
        elif connection == self._connection:
            self._attends = True
            self.session.contenders.add(self)
            self._apply(e.Created(answers.node(*value)))
        else:
            self._delete_orphan(value)

    def _delete_orphan(self, value: Any) -> None:
        path, stat = value
        self.session.delete(path, stat.ephemeralOwner)

    def _changed(self, connection: int, name: str, deleted: bool) -> None:
        if connection == self._connection:
            self._watchers.pop(name, None)
            self._apply(e.Changed(name, deleted))

    # --- effects ---------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[e.Effect]) -> None:
        rest = iter(effects)
        for effect in rest:
            if type(effect) is e.Create:
                self._create(effect, next(rest))
            else:
                self._CARRIES_OUT[type(effect)](self, effect)

    def _create(self, create: e.Create, look: e.Effect) -> None:
        """Create a node, and look at the line in the same go."""
        make, path = self.session.make, self.path
        self.asked_at = time.monotonic()
        self._worn_since = None
        also: tuple[Any, Done]
        if type(look) is e.List:
            also = make.listing(path), partial(self._answered, self._connection, e.Listed)
        else:
            also = make.reading(path), self._answer(answers.line_read)
        self.session.create_contender(
            f"{path}/{create.name}",
            self._data,
            partial(self._created, self._connection),
            self._delete_orphan,
            sequential=create.sequential,
            also=also,
        )

    def _make_line(self, _: e.MakeLine) -> None:
        self.session.create_containers(self.path, self._answer(answers.line_made))

    def _list(self, effect: e.List) -> None:
        event = partial(answers.listed, sync=effect.sync)
        self.session.children(self.path, self._answer(event), sync=effect.sync)

    def _read_line(self, _: e.ReadLine) -> None:
        self.session.read(self.path, self._answer(answers.line_read))

    def _remove_line(self, effect: e.RemoveLine) -> None:
        removed = self._answer(answers.line_removed)
        self.session.remove(self.path, effect.version, removed)

    def _read(self, effect: e.Read) -> None:
        path = f"{self.path}/{effect.name}"
        self.session.read(path, self._answer(partial(answers.node_read, effect.name)))

    def _watch(self, effect: e.Watch) -> None:
        name = effect.name
        changed = self._watchers[name] = partial(self._changed, self._connection, name)
        watched = self._answer(partial(answers.watched, name))
        self.session.watch(f"{self.path}/{name}", changed, watched)

    def _unwatch(self, effect: e.Unwatch) -> None:
        changed = self._watchers.pop(effect.name, None)
        if changed is not None:
            self.session.unwatch(f"{self.path}/{effect.name}", changed)

    def _delete(self, effect: e.Delete) -> None:
        if effect.name != self._deleting:
            gone = partial(self.machine.local.forget, effect.name)
            self.session.delete(f"{self.path}/{effect.name}", effect.session_id, gone)

    def _prove(self, _: e.Prove) -> None:
        proved = self._answer(lambda _value, _error: e.Proved())
        self.session.prove(lambda acknowledged: proved(acknowledged, None))

    def _grant(self, _: e.Grant) -> None:
        self.epoch = self.machine.epoch
        self.granted = True
        self._settled()

    def _refuse(self, effect: e.Refuse) -> None:
        self.error = refusal(effect, self.session, self.path, self.key)
        if effect.why is e.Why.WRITER_LOST:
            cast("Machine", self.machine.policy.spot).me.lose()  # type: ignore[attr-defined]
        self._settled()

    def _note_loss(self, effect: e.Lose) -> None:
        super()._lose(effect.reason.value)
        self.session.heartbeat.hurry()

    def _revoke(self, _: e.Revoke) -> None:
        if self._on_revoke is not None and not self.left:
            self._on_revoke()

    def _tell(self, effect: e.Tell) -> None:
        cast("QueuedContender", effect.contender).hear(effect.event)

    _CARRIES_OUT: Final[dict[type, Callable[..., None]]] = {
        e.MakeLine: _make_line,
        e.List: _list,
        e.ReadLine: _read_line,
        e.RemoveLine: _remove_line,
        e.Read: _read,
        e.Watch: _watch,
        e.Unwatch: _unwatch,
        e.Delete: _delete,
        e.Prove: _prove,
        e.Grant: _grant,
        e.Busy: lambda self, _: self._settled(),
        e.Refuse: _refuse,
        e.Lose: _note_loss,
        e.Revoke: _revoke,
        e.Tell: _tell,
    }
