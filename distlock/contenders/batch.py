"""Batches: one node in line for several waiters of a process, who have the lock in turns.

With ``handoff=N`` a process keeps its node until N of its waiters have had the lock, or none is
left, before the next process gets its turn. So N holds cost one pair of writes, and the others wait
for up to N holds instead of one. In the process itself it is first come, first served.

All holds of a batch are on one node and have one fencing token. No integer can tell them apart: the
token of a node is its czxid, and the next node, of another process, may have the very next one
before the batch begins, so between the two there is none left. `Hold.turn` orders the holds within
a batch, and a fenced write with a hold whose turn is over, while a later one has begun, is refused
before it is sent (`Hold.superseded`).

The node describes the member that was first when it was made, with an owner id of its own: the
holder changes unseen, so the deadlock detector must not believe the node.

Members post what they want. The batches belong to the connection thread, so one function,
`Batch._advance`, looks at the whole state and does what is due.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from distlock.queue.policies import MUTEX

from .contender import QueuedContender
from .grant import Grant

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.dispatch import Signal

    from distlock.session.session import Session

    from .grant import Reason


def check_handoff(turns: object, *, fair: bool, revocable: bool) -> None:
    """Refuse a ``handoff=`` that cannot be.

    :raises ValueError: with what to do instead
    """
    if type(turns) is not int or turns < 0:
        raise ValueError(f"handoff= is a number of waiters, 0 or more, not {turns!r}.")
    if turns and not fair:
        raise ValueError("handoff= needs the queue that fair=False does without; choose one.")
    if turns and revocable:
        raise ValueError(
            "With handoff= one node serves several holders in turns, so none of them can be asked "
            "to leave; use on_revoke= without it."
        )


class BatchMember(Grant):
    """A contender that waits for its turn in a batch, and then has it.

    The arguments are those of a `QueuedContender`.

    :param turns: how many turns a batch has
    """

    #: The number of its turn on the node, from 1.
    turn = 0
    #: The member that may hand us its turn.
    predecessor: BatchMember | None = None
    _told = False

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        turns: int,
        key: str,
        data: bytes,
        settled: Callable[[], None],
        try_only: bool = False,
        on_revoke: None = None,
    ) -> None:
        super().__init__(session)
        self.path = path
        self.key = key
        self.turns = turns
        #: Whether it does not wait.
        self.trying = try_only
        self.error: Exception | None = None
        #: The node that it holds by, or waits for.
        self.batch_node: BatchNode | None = None
        self._data = data
        self._settled = settled
        self._batch: Batch | None = None

    @property
    def ahead(self) -> int | None:
        """How many nodes were ahead of the batch's at the last look, None before the first."""
        node = self.batch_node
        if node is None:
            return None
        return node.seen_ahead if node.ahead is None else node.ahead

    @property
    def was_in_line(self) -> bool:
        """Whether the line has ever been seen, with this node or an earlier one."""
        node = self.batch_node
        return node is not None and node.was_in_line

    @property
    def asked_at(self) -> float:
        """When the server was last asked for a node (`time.monotonic`)."""
        return 0.0 if self.batch_node is None else self.batch_node.asked_at

    @property
    def head(self) -> str:
        """The path of the first in line, as far as is known."""
        return "" if self.batch_node is None else self.batch_node.head

    def join(self) -> None:
        """Wait as the last."""
        self.session.heartbeat.attend(self)
        self.session.soon(self._enter)

    def leave(self) -> None:
        """Wait no more, or end the turn and let the next one have it. May be repeated."""
        if self.granted:
            self.lost  # noqa: B018 - settles it: a lost node is not handed on
        self.left = True
        self.session.heartbeat.dismiss(self)
        if self.granted and not self._lost and self.turn < self.turns:
            follower: BatchMember | None = self.take_offer()
            if follower is not None:
                follower.follow(self)
        self.session.soon(self._leave)

    def follow(self, before: BatchMember) -> None:
        """Have the turn after that of `before`; from any thread, any number of times."""
        if before.batch_node is not None:
            self.take_turn(before.batch_node, before.turn + 1)
        self.settle()

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
        return self.left and self.batch_node is not None and self.batch_node.turns > self.turn

    def deadline_renewed(self) -> None:
        """The batch's node watches itself."""

    # --- on the connection thread ----------------------------------------------------------------

    def _enter(self) -> None:
        if not self.left:
            self._batch = _batch_at(self.session, self.path)
            self._batch.enter(self)

    def _leave(self) -> None:
        if self._batch is not None:
            self._batch.leave(self)

    def new_batch_node(self, batch: Batch) -> BatchNode:
        """Return a node that says what one of this member would say."""
        data = json.dumps({**json.loads(self._data or b"{}"), "owner": uuid4().hex})
        return BatchNode(
            self.session, self.path, key=self.key, data=data.encode(), settled=batch.advance
        )

    def take_turn(self, batch_node: BatchNode, number: int) -> None:
        """Have the lock."""
        self.batch_node = batch_node
        self.node = batch_node.node
        self.epoch = batch_node.epoch
        self.turn = number
        batch_node.begun[number] = None
        self.granted = True

    def settle(self) -> None:
        """Wake the one who waits, once."""
        if not self._told:
            self._settled()
            self._told = True


class BatchNode(QueuedContender):
    """The node of a batch in the queue. It also settles when it knows the contender ahead."""

    #: The member whose turn it is, as far as the connection thread knows.
    turn: BatchMember | None = None
    #: How many were ahead when that was last known: who waited for an earlier node is behind others
    #: until the queue says otherwise.
    seen_ahead: int | None = None

    def __init__(self, session: Session, path: str, **options: Any) -> None:
        super().__init__(session, path, policy=MUTEX, **options)
        #: The numbers of the turns that have begun; any thread that begins one adds its number.
        self.begun: dict[int, None] = {}

    @property
    def turns(self) -> int:
        """How many turns there were."""
        return len(self.begun)

    def _stand_behind(self, neighbour: QueuedContender) -> None:
        neighbour.follower = self  # no offer: a batch goes on in the connection thread

    def _waits(self) -> None:
        self.seen_ahead = self.ahead
        self._settled()


class Batch:
    """The members of this process that wait for turns at one lock, and their nodes.

    It lives on the connection thread.
    """

    def __init__(self, batches: dict[str, Batch], path: str) -> None:
        self._batches = batches
        self._path = path
        self._waiting: deque[BatchMember] = deque()
        #: Those of them that do not wait, until they know that they have to.
        self._tries: list[BatchMember] = []
        self._batch_node: BatchNode | None = None
        #: The node of the next batch: it joins the queue when half of this one is over.
        self._next: BatchNode | None = None
        #: The nodes that are in the queue.
        self._joined: list[BatchNode] = []

    def enter(self, member: BatchMember) -> None:
        """Wait as the last."""
        last = self._waiting[-1] if self._waiting else None
        if last is None and self._batch_node is not None:
            last = self._batch_node.turn
        if last is not None:
            last.offer_to(member)
            member.predecessor = last
        self._waiting.append(member)
        if member.trying:
            self._tries.append(member)
        member.batch_node = self._batch_node
        self.advance()

    def leave(self, member: BatchMember) -> None:
        """Wait no more, or end the turn and let the next one have it."""
        if not member.granted and self._withdraw(member):
            with suppress(ValueError):
                self._waiting.remove(member)
        self.advance()

    def _withdraw(self, member: BatchMember) -> bool:
        """Take the offer of a turn back; return False if the member has been handed it."""
        before = member.predecessor
        if before is not None:
            if before.take_offer() is None:
                return False
            before.follower = member.predecessor = None
        return True

    def advance(self) -> None:
        """Do what is due: a node has the lock or lost it, failed, or knows its place in line."""
        self._advance()
        node = self._batch_node
        if self._tries and node is not None and (node.granted or node.seen_ahead):
            for member in self._tries:  # somebody is ahead
                member.settle()
            self._tries.clear()
        if self._joined != self._wanted():
            self._join_and_leave()
        if not (self._waiting or self._joined) and self._batches.get(self._path) is self:
            del self._batches[self._path]  # a member may leave later; then there may be another

    def _advance(self) -> None:
        waiting, batch_node = self._waiting, self._batch_node
        if batch_node is not None:
            if batch_node.error is not None:
                self._fail(batch_node)
                return
            if not batch_node.granted:
                if waiting:
                    return
            else:
                lost = batch_node.lost
                in_turn, last = self._member_in_turn(batch_node, lost), batch_node.turn
                if in_turn is not None:
                    self._prepare(batch_node, in_turn)
                    return
                more = last is None or batch_node.turns < last.turns
                if more and not lost and self._give_turn(batch_node):
                    return
        ready, self._next = self._next, None
        if not waiting:
            self._batch_node = None
            return
        self._begin(ready or waiting[0].new_batch_node(self), after=batch_node)
        if ready:
            self._advance()

    def _begin(self, batch_node: BatchNode, after: BatchNode | None) -> None:
        if after is not None and after.was_in_line and batch_node.seen_ahead is None:
            # Its place is not known yet, but who gives up now has waited for others.
            batch_node.seen_ahead, batch_node.was_in_line = 1, True
        self._batch_node = batch_node
        for member in self._waiting:
            member.batch_node = batch_node

    def _member_in_turn(self, batch_node: BatchNode, lost: bool) -> BatchMember | None:
        """Return who has the turn, or None: also where members have handed it over themselves."""
        turn = batch_node.turn
        while turn is not None and (turn.left or lost):
            follower: BatchMember | None = turn.follower
            if follower is None or self._withdraw(follower):
                return None
            turn.follower = follower.predecessor = None
            with suppress(ValueError):
                self._waiting.remove(follower)
            follower.follow(turn)  # again, for the thread of the other may have been interrupted
            batch_node.turn = turn = follower
        return turn

    def _give_turn(self, batch_node: BatchNode) -> bool:
        """Give the turn to the first that waits; return False if nobody does."""
        while self._waiting:
            member = self._waiting.popleft()
            self._withdraw(member)
            if not member.left:
                if not batch_node.turns:
                    batch_node.listen(partial(self._changed, member.session))
                batch_node.turn = member
                member.take_turn(batch_node, batch_node.turns + 1)
                self._prepare(batch_node, member)
                member.settle()
                return True
        return False

    def _changed(self, session: Session, _: Signal) -> None:
        session.soon(self.advance)

    def _prepare(self, batch_node: BatchNode, turn: BatchMember) -> None:
        """Let the next batch stand in line, if there will be one."""
        if self._next is None and batch_node.turns * 2 > turn.turns:
            first = next((member for member in self._waiting if not member.trying), None)
            if first is not None:
                self._next = first.new_batch_node(self)

    def _fail(self, batch_node: BatchNode) -> None:
        failed = [*self._waiting]
        self._waiting.clear()
        self._batch_node = self._next = None
        for member in failed:
            member.error = batch_node.error
            member.settle()

    def _join_and_leave(self) -> None:
        """Let nodes join and leave the queue, each of which may be news in turn."""
        while joining := [one for one in self._wanted() if one not in self._joined]:
            self._joined.append(joining[0])  # before the others leave the queue
            joining[0].join()
        while leaving := [one for one in self._joined if one not in self._wanted()]:
            self._joined.remove(leaving[0])
            leaving[0].leave()
            leaving[0].turn = None  # which knows it, too

    def _wanted(self) -> list[BatchNode]:
        return [node for node in (self._batch_node, self._next) if node is not None]


#: By session and path; each session's belong to its connection thread.
_batches: WeakKeyDictionary[Session, dict[str, Batch]] = WeakKeyDictionary()


def _batch_at(session: Session, path: str) -> Batch:
    """Return the batch of a line; it is there as long as somebody is in it."""
    batches = _batches.get(session)
    if batches is None:
        batches = _batches[session] = {}
    batch = batches.get(path)
    if batch is None:
        batch = batches[path] = Batch(batches, path)
    return batch
