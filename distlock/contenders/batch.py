"""Batches: one node in line for several waiters of a process, who have the lock in turns.

With ``handoff=N`` a process keeps its node until N of its waiters have had the lock, or none is
left, before the next process gets its turn. So N holds cost one pair of writes, and the others wait
for up to N holds instead of one. In the process itself it is first come, first served.

All holds of a batch are on one node and have one fencing token: the next node may have the very
next czxid, so no integers are left between the two. `Hold.turn` orders the holds of a batch, and a
fenced write with a hold whose turn is over, while a later one has begun, is refused before it is
sent (`Hold.superseded`). The node has an owner id of its own: the holder changes unseen, so the
deadlock detector must not believe it.

A member joins and leaves in its own thread. A holder that leaves gives its follower the next turn
before it goes, so a line whose node has the lock is never empty in between. All else is done on the
connection thread: `Batch.advance` does what is due, any number of times.
"""

from __future__ import annotations

import json
import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from distlock.queue.policies import MUTEX
from distlock.queue.states import State

from .contender import QueuedContender
from .grant import Grant, tell_late

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.queue.events import Event, Reason
    from distlock.session.session import Session

#: The states of a contender that knows of somebody ahead.
_IN_LINE: Final = (State.BEHIND, State.WAITING, State.ASIDE)


def check_handoff(handoff: object, *, fair: bool, revocable: bool) -> None:
    """Refuse a ``handoff=`` that cannot be.

    :raises ValueError: with what to do instead
    """
    if type(handoff) is not int or handoff < 0:
        raise ValueError(f"handoff= is a number of waiters, 0 or more, not {handoff!r}.")
    if handoff and not fair:
        raise ValueError("handoff= needs the queue that fair=False does without; choose one.")
    if handoff and revocable:
        raise ValueError(
            "With handoff= one node serves several holders in turns, so none of them can be asked "
            "to leave; use on_revoke= without it."
        )


class BatchMember(Grant):
    """A contender that waits for its turn in a batch, and then has it.

    The arguments are those of a `QueuedContender`.

    :param handoff: how many turns a batch has
    """

    #: The node and the number of its turn, from the moment when nobody else can have that turn.
    reserved: tuple[BatchNode, int] | None = None
    #: The node that it holds by, or waited for until it left.
    batch_node: BatchNode | None = None
    #: The number of its turn on the node, from 1.
    turn = 0
    #: How many waited when there were too many to wait behind.
    crowd: int | None = None
    #: Why it will have no turn.
    error: Exception | None = None
    _batch: Batch | None = None
    _told = False

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        handoff: int,
        key: str,
        data: bytes,
        settled: Callable[[], None],
        max_waiters: float = math.inf,
        on_revoke: None = None,
    ) -> None:
        super().__init__(session)
        self.path = path
        self.key = key
        self.handoff = handoff
        self.max_waiters = max_waiters
        self.data = data
        self._settled = settled

    @property
    def _node(self) -> BatchNode | None:
        """The node that it holds by, or waits for."""
        batch = self._batch
        return self.batch_node or (None if batch is None else batch.node)

    @property
    def ahead(self) -> int | None:
        """How many were ahead at the last look, None before the first."""
        batch, node = self._batch, self._node
        if batch is None or node is None:
            return None
        if node.granted and not self.granted:
            return None if batch.first is self else 1
        seen = node.seen_ahead if node.ahead is None else node.ahead
        return 1 if seen is None and node.follows and self.max_waiters else seen

    @property
    def was_in_line(self) -> bool:
        """Whether the line has ever been seen, with this node or an earlier one."""
        node = self._node
        return node is not None and node.was_in_line

    @property
    def asked_at(self) -> float:
        """When the server was last asked for a node (`time.monotonic`)."""
        node = self._node
        return 0.0 if node is None else node.asked_at

    @property
    def head(self) -> str:
        """The path of the first in line, as far as is known."""
        node = self._node
        return "" if node is None else node.head

    def join(self) -> None:
        """Wait as the last."""
        self.session.heartbeat.attend(self)
        batch = self._batch = batch_at(self.session, self.path)
        batch.enter(self)
        if self.max_waiters < math.inf or not batch.runs:
            self.session.soon(batch.advance)

    def leave(self) -> None:
        """Wait no more, or end the turn and let the next one have it. May be repeated."""
        batch = self._batch or batch_at(self.session, self.path)
        if self.granted and not (self.left or self.lost):
            self.follower = batch.reserve_behind(self)
        self.batch_node = self._node  # for the one who asks what it waited for
        self.left = True
        self.session.heartbeat.dismiss(self)
        batch.remove(self)
        if self.follower is not None:
            self.follower.begin()
            self.follower = None
        if not batch.runs:
            self.session.soon(batch.advance)

    def reserve(self, node: BatchNode, number: int) -> None:
        """Let nobody else have this turn; from any thread, and the first one decides."""
        reserved = self.__dict__.setdefault("reserved", (node, number))
        reserved[0].limits[reserved[1]] = self.handoff

    def begin(self) -> None:
        """Have the reserved turn; from any thread, any number of times."""
        if not self.granted and self.reserved is not None:
            node, self.turn = self.reserved
            self.node = node.node
            self.epoch = node.epoch
            self.batch_node = node
            self.granted = True
        self.settle()

    def judge(self, node: BatchNode, place: int) -> None:
        """Be busy if too many wait ahead, as far as this process knows.

        :param place: in the process, from 0
        """
        waiting = place - 1 + (0 if node.granted else node.seen_ahead or 0)
        if waiting >= self.max_waiters and not self.granted:
            self.crowd = waiting
            self.settle()

    def settle(self) -> None:
        """Wake the one who waits, once."""
        if not self._told:
            self._settled()
            self._told = True

    @property
    def lost(self) -> bool:
        """Whether the turn is, or was at any moment until it ended, not certain any more."""
        node = self.batch_node
        if self.granted and not self.left and (node is None or node.lost):
            self._lose("session" if node is None else node.lost_reason)
        return self._lost

    def _lose(self, reason: Reason) -> None:
        super()._lose(reason)
        if self.batch_node is not None and reason != "session":
            self.batch_node.lose()

    def _give_up(self) -> None:
        # With its node, since what has the next turn on it has the same fencing token.
        if self.granted and not self.left:
            self._lose("max_hold")
            self.session.heartbeat.hurry()

    @property
    def superseded(self) -> bool:
        """Whether its turn is over, and a later one has begun on the same node."""
        return self.left and self.batch_node is not None and self.batch_node.begun > self.turn

    def deadline_renewed(self) -> None:
        """The batch's node watches itself."""

    def new_batch_node(self, batch: Batch) -> BatchNode:
        """Return a node that says what one of this member would say."""
        session, advance = self.session, batch.advance
        data = json.dumps({**json.loads(self.data or b"{}"), "owner": uuid4().hex})
        node = BatchNode(session, self.path, key=self.key, data=data.encode(), settled=advance)
        node.listen(lambda news: None if news is None else session.soon(advance))
        return node


class BatchNode(QueuedContender):
    """The node of a batch in the queue. It also settles when it knows the contender ahead."""

    #: How many were ahead when that was last known.
    seen_ahead: int | None = None
    #: Whether it comes after a node that has been in line: who waited for that one, which a try has
    #: not, is behind others until the queue says otherwise.
    follows = False

    def __init__(self, session: Session, path: str, **options: Any) -> None:
        super().__init__(session, path, policy=MUTEX, **options)
        #: By the number of each turn that has begun, how many turns its member allows. Any thread
        #: that begins a turn adds it, so it is no counter.
        self.limits: dict[int, int] = {}

    @property
    def begun(self) -> int:
        """How many turns have begun."""
        return len(self.limits)

    @property
    def half_over(self) -> bool:
        """Whether half of its turns have begun."""
        begun = self.begun
        return begun > 0 and begun * 2 > self.limits[begun]

    @property
    def has_turns(self) -> bool:
        """Whether it can give another turn."""
        begun = self.begun
        return self.granted and not self.lost and (not begun or begun < self.limits[begun])

    def _stand_behind(self, neighbour: QueuedContender) -> None:
        neighbour.follower = self  # no offer: a batch goes on in the connection thread

    def apply(self, event: Event) -> None:
        super().apply(event)
        if self.machine.state in _IN_LINE:
            self.seen_ahead = self.ahead
            self._settled()


class Batch:
    """The members of this process that wait for turns at one lock, and their nodes."""

    def __init__(self, batches: dict[str, Batch], path: str) -> None:
        self._batches = batches
        self._path = path
        #: In the order of arrival. Each adds and removes itself.
        self.line: deque[BatchMember] = deque()
        #: Those of them that may be too many, until they know who is ahead.
        self.judged: deque[BatchMember] = deque()
        #: The node of the turns of now; it and the next one belong to the connection thread.
        self.node: BatchNode | None = None
        #: The node of the next batch: it joins the queue when half of this one is over.
        self.next: BatchNode | None = None
        #: The nodes that are in the queue.
        self._joined: list[BatchNode] = []

    @property
    def first(self) -> BatchMember | None:
        """The member whose turn it is, or who will have the next one."""
        try:
            return self.line[0]
        except IndexError:
            return None

    @property
    def runs(self) -> bool:
        """Whether the turns go on without the connection thread."""
        first, node = self.first, self.node
        return (
            first is not None
            and first.granted
            and not first.left
            and (self.next is not None or node is None or len(self.line) < 2 or not node.half_over)
        )

    def enter(self, member: BatchMember) -> None:
        """Wait as the last; from any thread."""
        self.line.append(member)
        if member.max_waiters < math.inf:
            self.judged.append(member)

    def remove(self, member: BatchMember) -> None:
        """Wait no more, or end the turn; from any thread, any number of times."""
        with suppress(ValueError):
            self.line.remove(member)

    def reserve_behind(self, holder: BatchMember) -> BatchMember | None:
        """Reserve the next turn for the one behind the holder, and return it; None if none may."""
        try:
            follower = self.line[1]
        except IndexError:
            return None
        node = holder.batch_node
        if node is None or not node.has_turns:
            return None
        follower.reserve(node, holder.turn + 1)
        return follower

    # --- on the connection thread ----------------------------------------------------------------

    def advance(self) -> None:
        """Do what is due: a node has the lock or lost it, failed, or knows its place in line."""
        self._advance()
        node = self.node
        if node is not None and (node.granted or node.seen_ahead):  # somebody is ahead
            while self.judged:
                member = self.judged.popleft()
                with suppress(ValueError):  # it has left
                    member.judge(node, self.line.copy().index(member))
            for member in self.line.copy():
                tell_late(member)
        if self._joined != self._wanted():
            self._join_and_leave()
        if not (self.line or self._joined) and self._batches.get(self._path) is self:
            del self._batches[self._path]

    def _advance(self) -> None:
        while (first := self._first_that_stays()) is not None:
            node = self.node
            if node is not None and not node.granted:
                if node.error is not None:
                    self._fail(node.error)
                return  # or else its grant will be news
            if first.reserved is None:
                if node is None or not node.has_turns:
                    self._begin_next(first)
                    continue
                first.reserve(node, node.begun + 1)
            first.begin()  # also where another thread was interrupted
            self._prepare()
            return
        self.node = self.next = None

    def _first_that_stays(self) -> BatchMember | None:
        """Remove those who have left, or lost their turn, from the head of the line."""
        while (first := self.first) is not None:
            if first.reserved is not None and first.reserved[0].lost:
                first.begin()
                first.lost  # noqa: B018 - settles it
            elif not first.left:
                break
            self.remove(first)
        return first

    def _begin_next(self, first: BatchMember) -> None:
        """Go on with the next node."""
        over, node = self.node, self.next or first.new_batch_node(self)
        if over is not None and over.was_in_line and node.seen_ahead in (None, 1):
            # Its place is not known, as it is `over` that was seen ahead of it and goes now; but
            # who gives up now has waited for others.
            node.ahead = node.seen_ahead = None
            node.follows = node.was_in_line = True
        self.node, self.next = node, None

    def _prepare(self) -> None:
        """Let the next batch stand in line, if there will be one."""
        if self.next is None and self.node is not None and self.node.half_over:
            waiting = (one for one in self.line.copy() if one.max_waiters and not one.reserved)
            first = next(waiting, None)
            if first is not None:
                self.next = first.new_batch_node(self)

    def _fail(self, error: Exception) -> None:
        self.node = self.next = None
        while (first := self.first) is not None:
            first.error = error
            first.settle()
            self.remove(first)

    def _join_and_leave(self) -> None:
        """Let nodes join and leave the queue, each of which may be news in turn."""
        while joining := [one for one in self._wanted() if one not in self._joined]:
            self._joined.append(joining[0])  # before the others leave the queue
            joining[0].join()
        while leaving := [one for one in self._joined if one not in self._wanted()]:
            self._joined.remove(leaving[0])
            leaving[0].leave()

    def _wanted(self) -> list[BatchNode]:
        return [node for node in (self.node, self.next) if node is not None]


def batch_at(session: Session, path: str) -> Batch:
    """Return the batch of a line; it is there as long as somebody is in it."""
    batches: dict[str, Batch] = session.batches
    batch = batches.get(path)
    if batch is None:
        batch = batches.setdefault(path, Batch(batches, path))
    return batch
