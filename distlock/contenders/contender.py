"""Drives a contender of the wait queue: events go into its machine, and effects are carried out.

The caller's thread makes the contender, lets it join, and sends the first requests. If one cannot
be sent, because there is no connection or the session has too many nodes, it applies the refusal,
too. Every later event is applied on the connection thread, in order: answers, watches, changes of
the connection, and what a caller posts. So there is no lock. One thing is shared by two threads: an
offer, which only one of them can take (`QueuedContender._take_offer`).

The session counts its connections; a contender that has missed a change catches up before the next
event. An answer counts for the connection on which its request was made only: on another one, a
node that was created is deleted, and an error is no event.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from distlock.engine.errors import UNKNOWN, NoNode, NotEmpty
from distlock.exceptions import IncompatiblePeer, LockLost, LockUnavailable
from distlock.keys import znodes
from distlock.queue import events as e
from distlock.queue.local_line import Line, LocalLine
from distlock.queue.machine import Machine
from distlock.queue.states import State

from .cool_down import remove_after
from .grant import Grant, tell_late

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distlock.engine.reply import Done
    from distlock.queue.policies import Policy
    from distlock.session.session import Session

#: For how long only clients that do not begin lines anew may keep us from doing so, in seconds.
WORN_SECONDS: Final = 1.0
_PROBLEMS: Final = {NoNode: e.Problem.MISSING, NotEmpty: e.Problem.NOT_EMPTY}


class QueuedContender(Grant):
    """A caller's wait in the line under `path`, and its grant.

    :param policy: the kind of contender
    :param key: what is locked, for messages
    :param data: what the node says of its owner
    :param settled: called, from any thread, when it is granted, busy or refused
    :param max_waiters: settle where so many wait ahead when it comes; 0 does not wait
    :param on_revoke: called on the connection thread each time somebody asks to leave
    :param machine: makes the machine
    """

    #: Why it was refused.
    error: Exception | None = None
    #: How many were ahead at the last look; None until the line has been seen.
    ahead: int | None = None
    #: How many waited when there were too many to wait behind.
    crowd: int | None = None
    #: Whether the line has ever been seen, with this node or an earlier one.
    was_in_line = False
    #: When the server was last asked for a node (`time.monotonic`).
    asked_at = 0.0
    #: The number of the connection that the machine knows of.
    _connection = 0
    #: Whether the caller's thread is sending the first requests.
    _joining = False
    #: Whether the answer to a create is still to come, unless the join was torn.
    _creating = False
    #: Whether it hears of the session's connections.
    _attends = False
    #: Whether no connection matters to it any more.
    _over = False
    #: The neighbour that may be handed the lock: `follower`, until the offer is taken.
    _offer: QueuedContender | None = None
    #: The neighbour that may hand us the lock; changed on the connection thread.
    _giver: QueuedContender | None = None
    #: Whether the caller was woken to a grant.
    _told = False
    #: The server's time at the last sight of it, in seconds, and our own (`time.monotonic`) then.
    _seen_at: tuple[float, float] | None = None
    #: The name of the node that the caller deletes itself.
    _deleting = ""
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
        max_waiters: float = math.inf,
        on_revoke: Callable[[], None] | None = None,
        machine: Callable[..., Machine] = Machine,
    ) -> None:
        super().__init__(session)
        self.path = path
        self.key = key
        self.kind = policy.kind
        self.shared = policy.shared and policy.spot is None  # which keeps the others out
        self.data = data
        self._settled = settled
        self._on_revoke = on_revoke
        #: By the name of what is watched.
        self._watchers: dict[str, Callable[[bool], None]] = {}
        self.machine = machine(
            policy,
            session,
            LocalLine(session.local_nodes, session.lines, path),
            me=self,
            max_waiters=max_waiters,
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
        self._joining = True
        effects = self.machine.apply(e.FOLLOW if follows else e.JOIN)
        if effects:
            self.carry_out(effects)
        else:
            session.soon(self._attend)
        self._joining = False
        if self._connection != session.connection:  # `connection_changed` has waited for us
            session.soon(self._attend)

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
        node, follower = self.node, self.follower
        if node is None or not (follower is None or follower.left or self._hand_over()):
            session.soon(self._attend)  # it also deletes the node
            return
        gone = partial(self.machine.local.forget, node.name)
        delete = partial(session.deletes.delete, f"{path}/{node.name}", node.session_id, gone)
        try:
            self._deleting = node.name
            session.post(self._attend)  # the answer to the delete wakes the connection thread
            delete()
        except BaseException:  # a soft time limit landed here
            session.soon(delete)
            raise

    def _hand_over(self) -> bool:
        """Give the lock to the neighbour that waits for it, unless the connection thread does."""
        neighbour: QueuedContender | None = None
        if self.granted and not self._lost:
            neighbour = self._take_offer()
        if neighbour is None:
            return False
        neighbour.take_over(self.epoch)
        return True

    def _take_offer(self) -> QueuedContender | None:
        """Return the neighbour that may be handed the lock; None if another thread was faster.

        The thread that releases the lock hands it over; or the connection thread takes the offer
        back, before the neighbour goes on alone. A dict gives an entry to one of them only.
        """
        offer: QueuedContender | None = self.__dict__.pop("_offer", None)
        return offer

    def take_over(self, epoch: int) -> None:
        """Have the lock, of a grant of this epoch, from a neighbour; called from any thread."""
        self.epoch = epoch
        self.granted = True
        self._settled()
        self._told = True

    @property
    def head(self) -> str:
        """The path of the first in line, as far as is known."""
        first: Any = self
        while (before := first.machine.before) is not None:
            first = before
        name = first.node.name if first.granted and first.node else first.machine.head
        return f"{self.path}/{name}" if name else ""

    def _lose(self, reason: e.Reason) -> None:
        if not (self._lost or self.left):
            super()._lose(reason)
            event = e.Lapsed() if reason == "session" else e.GiveUp(reason)
            self.session.soon(partial(self.hear, event))

    def _give_up(self) -> None:
        super()._lose("max_hold")
        if not self.left:
            self.session.soon(partial(self.hear, e.GiveUp("max_hold")))

    def _refuse_worn_line(self, since: float) -> None:
        self._worn_since = None
        if time.monotonic() - since > WORN_SECONDS and self.error is None:
            self.error = _worn(self.head, self.key)

    # --- events, on the connection thread --------------------------------------------------------

    def apply(self, event: e.Event) -> None:
        if self._over:
            return
        if not self._attends:  # the first one after `Join`
            self._attends = True
            self.session.contenders.add(self)
        machine = self.machine
        if self._giver is not None:
            event = self._heed_offer(self._giver, event)
        effects = machine.apply(event)
        if not self.left:
            self.node = machine.node
            self.was_in_line = self.was_in_line or machine.seen
        if len(effects) == 1:
            self._CARRIES_OUT[type(effects[0])](self, effects[0])
        elif effects:
            self.carry_out(effects)
        self.ahead = machine.ahead  # after the grant: see `Attempt.outcome`
        if self.ahead:
            tell_late(self)
        match machine.state:
            case State.JOINING:
                self._worn_since = None
            case State.BEHIND:
                self._stand_behind(cast("QueuedContender", machine.before))
            case State.ASIDE:
                if not machine.head_is_worn:
                    self._worn_since = None
                elif self._worn_since is None:
                    self._worn_since = time.monotonic()

    def hear(self, event: e.Event) -> None:
        """Apply an event that is no answer."""
        if self._connection != self.session.connection:
            self.connection_changed()
        self.apply(event)

    def connection_changed(self) -> None:
        """Take note of a connection that was lost, or of a new one."""
        session = self.session
        if self._joining and not self.left:
            return  # it notices itself
        if self._connection != session.connection:
            self._connection = session.connection
            self._watchers.clear()
            self.apply(e.Disconnected())
            if session.connected:
                self.apply(e.Connected())

    def deadline_renewed(self) -> None:
        """Watch the own node from the first heartbeat on: an operator may break it."""
        if self._attends and not self._joining:  # or else its caller may be applying `Join` now
            self.hear(e.Renewed())

    def _attend(self) -> None:
        """Hear of the session's connections until the caller has left, and of that."""
        if self._over:
            return
        session = self.session
        if self.left:
            if self.node is None:  # it may have joined after `leave`
                session.heartbeat.dismiss(self)
                if session.newest.get(self.path) is self:
                    session.newest.pop(self.path, None)
            self.apply(e.LEAVE)
            self._over = True
            session.contenders.discard(self)
            self._watchers.clear()
            self.machine.me = self.follower = None  # they refer to each other
            self._unwatch_line()
        else:
            self._attends = True
            session.contenders.add(self)
            self.connection_changed()

    def _stand_behind(self, neighbour: QueuedContender) -> None:
        neighbour.follower = neighbour._offer = self
        self._giver = neighbour

    def _heed_offer(self, giver: QueuedContender, event: e.Event) -> e.Event:
        """Take the offer of the lock back, or learn that the caller has the lock already."""
        self._giver = None
        if giver._take_offer() is None:
            handed_over = e.HandedOver(giver.epoch)
            if type(event) is e.NeighbourLeft:
                return handed_over
            self.apply(handed_over)
        return event

    # --- answers ---------------------------------------------------------------------------------

    def _answer(self, event: Callable[[Any, e.Error], Any]) -> Done:
        """Return what takes the answer to a request that is made now.

        :param event: makes the event of a value and an error
        """
        return partial(self._answered, self._connection, event)

    def _answered(
        self,
        connection: int,
        event: Callable[[Any, e.Error], Any],
        value: Any,
        error: BaseException | None,
    ) -> None:
        if isinstance(error, UNKNOWN):  # void: the end of its connection is what happened
            if not self._attends:  # the first answers; from any thread
                self.session.soon(self._attend)
        elif connection == self._connection:
            if type(value) is list and znodes.UNTIL in "/".join(value):
                value = self._without_ended(value)
            self.apply(event(value, error and _PROBLEMS.get(type(error), error)))

    def server_time(self, *, at_most: bool = False) -> float:
        """Return the least that the server's time may be now, in seconds; 0 if it is unknown.

        :param at_most: return the most, once the own node was created
        """
        then, answered_at = self._seen_at or (0.0, time.monotonic())
        return then + time.monotonic() - (self.asked_at if at_most else answered_at)

    def _without_ended(self, names: list[str]) -> list[str]:
        """Return the names of a line without ended cool-downs; the others are removed in time."""
        now = self.server_time()
        for name in names:
            end = znodes.cool_down_end(name)
            if end is not None and self._seen_at is not None:
                remove_after(self.session, f"{self.path}/{name}", end - now)
        return znodes.without_ended(names, now)

    def _created(self, connection: int, value: Any, error: BaseException | None) -> None:
        self._creating = False
        if self._over and isinstance(error, UNKNOWN):
            self.session.deletes.sweep(self.path, self.machine.prefix)
        elif error is not None:
            self._answered(connection, lambda _, error: e.Created(None, error), value, error)
        elif connection == self._connection and not self._over:
            self._seen_at = value[1].mtime / 1000, time.monotonic()
            self.apply(e.Created(_node(*value)))
        else:
            self._delete_orphan(value)

    def _delete_orphan(self, value: Any) -> None:
        path, stat = value
        self.session.delete(path, stat.ephemeralOwner)

    def _watcher(self, name: str, event: Callable[[bool], Any]) -> Callable[[bool], None]:
        """Return what hears once that a node has changed, perhaps that it was deleted.

        :param name: for `_take_back`
        :param event: makes the event
        """
        changed = self._watchers[name] = partial(self._changed, self._connection, name, event)
        return changed

    def _changed(
        self, connection: int, name: str, event: Callable[[bool], Any], deleted: bool
    ) -> None:
        if connection == self._connection:
            self._watchers.pop(name, None)
            self.apply(event(deleted))

    def _take_back(self, name: str, path: str, *, children: bool = False) -> None:
        changed = self._watchers.pop(name, None)
        if changed is not None:
            self.session.unwatch(path, changed, children=children)

    # --- effects ---------------------------------------------------------------------------------

    def carry_out(self, effects: Sequence[Any]) -> None:
        """Carry effects out, in their order."""
        rest = iter(effects)
        for effect in rest:
            if type(effect) is e.Create:
                self._create(effect, next(rest, None))
            else:
                self._CARRIES_OUT[type(effect)](self, effect)

    def _create(self, create: e.Create, look: e.List | None = None) -> None:
        """Create a node, and list the line in the same go if that is the next effect."""
        make, path = self.session.make, self.path
        also: tuple[Any, Done] | None = None
        self.asked_at = time.monotonic()
        self._seen_at = None
        self._creating = True
        if look is not None:
            also = make.listing(path), partial(self._answered, self._connection, e.Listed)
        self.session.create_ephemeral(
            f"{path}/{create.name}",
            self.data,
            partial(self._created, self._connection),
            self._delete_orphan,
            sequential=create.sequential,
            also=also,
        )

    def _make_line(self, _: e.MakeLine) -> None:
        self.session.create_containers(self.path, self._answer(lambda _, error: e.LineMade(error)))

    def _list(self, effect: e.List) -> None:
        done = self._answer(listed)
        if effect.sync:
            self.session.deletes.search(self.path, done, lambda: not self.left)
        else:
            self.session.children(self.path, done)

    def _read_line(self, _: e.ReadLine) -> None:
        self.session.read(self.path, self._answer(_line_read))

    def _remove_line(self, effect: e.RemoveLine) -> None:
        removed = self._answer(lambda _, error: e.LineRemoved(error))
        self.session.remove(self.path, effect.version, removed)

    def _read(self, effect: e.Read) -> None:
        path = f"{self.path}/{effect.name}"
        self.session.read(path, self._answer(partial(self._node_read, effect.name)))

    def _node_read(self, name: str, value: Any, error: e.Error) -> e.NodeRead:
        if error:
            return e.NodeRead(name, error=error)
        data, stat = value
        self._seen_at = self._seen_at or (stat.mtime / 1000, time.monotonic())
        return e.NodeRead(name, _node(name, stat), data)

    def _watch(self, effect: e.Watch) -> None:
        name = effect.name
        changed = self._watcher(name, partial(e.Changed, name))
        watched = self._answer(partial(_watched, name))
        self.session.watch(f"{self.path}/{name}", changed, watched)

    def _unwatch(self, effect: e.Unwatch) -> None:
        self._take_back(effect.name, f"{self.path}/{effect.name}")

    def _prove(self, _: e.Prove) -> None:
        proved = self._answer(lambda _value, _error: e.Proved())
        self.session.prove(lambda acknowledged: proved(acknowledged, None))

    def _learn_line(self, _: e.WatchLine) -> None:
        path, lines = self.path, self.session.lines
        line = lines.setdefault(path, Line(changed=partial(_forget, lines, path)))
        answered = self._answer(_line_read)

        def read(value: Any, error: BaseException | None) -> None:
            if error is None and lines.get(path) is line:  # or else the watch is no more
                lines[path] = line._replace(token=value[1].czxid)
            answered(value, error)

        self.session.watch(path, line.changed, read)

    def _unwatch_line(self) -> None:
        """Forget the line if the last of this process that came to it has left."""
        path, session = self.path, self.session
        if path in session.lines and path not in session.newest:
            session.unwatch(path, session.lines.pop(path).changed)

    def _delete(self, effect: e.Delete) -> None:
        if effect.name != self._deleting:
            gone = partial(self.machine.local.forget, effect.name)
            self.session.delete(f"{self.path}/{effect.name}", effect.session_id, gone)

    def _sweep(self, effect: e.Sweep) -> None:
        """Look for the node, unless the answer to its create is still to come; see `_created`."""
        if self._joining or not self._creating:
            self.session.deletes.sweep(self.path, effect.prefix)

    def _grant(self, _: e.Grant) -> None:
        self.epoch = self.machine.epoch
        self.granted = True
        if not self._told:
            self._settled()

    def _busy(self, effect: e.Busy) -> None:
        self.crowd = effect.waiting
        self._settled()

    def _refuse(self, effect: e.Refuse) -> None:
        self.error = _refusal(effect, self.session, self.path, self.key)
        if effect.why is e.Why.WRITER_LOST:
            cast("Machine", self.machine.policy.spot).me.lose()  # type: ignore[attr-defined]
        self._settled()

    def _note_loss(self, effect: e.Lose) -> None:
        super()._lose(effect.reason)
        self.session.heartbeat.hurry()

    def _revoke(self, _: e.Revoke) -> None:
        if self._on_revoke is not None and not self.left:
            self._on_revoke()

    def _tell(self, effect: e.Tell) -> None:
        other: Any = effect.contender
        other.hear(effect.event)

    #: By the type of an effect: what carries it out.
    _CARRIES_OUT: ClassVar[Mapping[type, Callable[..., None]]] = {
        e.Create: _create,
        e.MakeLine: _make_line,
        e.List: _list,
        e.ReadLine: _read_line,
        e.RemoveLine: _remove_line,
        e.Read: _read,
        e.Watch: _watch,
        e.Unwatch: _unwatch,
        e.Prove: _prove,
        e.WatchLine: _learn_line,
        e.Delete: _delete,
        e.Sweep: _sweep,
        e.Grant: _grant,
        e.Busy: _busy,
        e.Refuse: _refuse,
        e.Lose: _note_loss,
        e.Revoke: _revoke,
        e.Tell: _tell,
    }


def _forget(lines: dict[str, Line], path: str, _deleted: bool) -> None:
    lines.pop(path, None)


def listed(names: Any, error: e.Error) -> e.Listed:
    return e.Listed(names or (), error)


def _line_read(value: Any, error: e.Error) -> e.LineRead:
    """Return the event of a line whose own node was read; the answer is (data, stat)."""
    if error:
        return e.LineRead(error=error)
    data, stat = value
    plain = not (data or stat.version or stat.aversion)
    return e.LineRead(stat.czxid, stat.version, plain)


def _watched(name: str, value: Any, error: e.Error) -> e.Watched:
    if error:
        return e.Watched(name, error=error)
    data, stat = value
    return e.Watched(name, data, stat.version)


def _node(path: str, stat: Any) -> e.Node:
    name = path.rpartition("/")[2]
    return e.Node(name, stat.czxid, stat.ephemeralOwner, int(name[-10:]))


def _refusal(refuse: e.Refuse, session: Session, path: str, key: str) -> Exception:
    """Return the error for a contender of the line under `path`."""
    if refuse.why is e.Why.INCOMPATIBLE:
        return _incompatible(f"{path}/{refuse.about}", str(refuse.about), key)
    if refuse.why is e.Why.NOT_REMOVABLE:
        return LockUnavailable(
            f"{path} has come to the end of its sequence numbers, and has data or an ACL "
            "of somebody's own, so distlock does not remove it. Remove it by hand while nobody "
            f"uses {key!r}, and make it again.",
            key=key,
            retry_after=session.conf.retry_after,
            using=session.conf.alias,
        )
    if refuse.why is e.Why.WRITER_LOST:
        return LockLost(f"The write lock {key!r} was lost before it became a read lock.")
    return session.unavailable(key, refuse.about if isinstance(refuse.about, Exception) else None)


def _incompatible(path: str, name: str, key: str) -> IncompatiblePeer:
    node = znodes.parse(name)
    recipe = znodes.incompatible_recipe(name)
    if not recipe:
        mutex = node is not None and node.kind == znodes.LOCK
        recipe = f"Curator's {'InterProcessMutex' if mutex else 'InterProcessReadWriteLock'}"
    return IncompatiblePeer(
        f"{path} is a node of {recipe}, which does not wait for a node such as ours: both would "
        f"believe that they hold {key!r}. Use the same recipe on both sides "
        "(docs/reference/curator.md has a table of all pairs), or another path."
    )


def _worn(path: str, key: str) -> IncompatiblePeer:
    """Return the error for a line that has to begin anew, and whose first node stays."""
    return IncompatiblePeer(
        f"{path} is near the end of its sequence numbers, so the line has to begin anew, "
        "and a client that does not know that (Curator, or an older distlock) stays in it. Stop "
        f"the clients of {key!r} until nobody is in the line."
    )
