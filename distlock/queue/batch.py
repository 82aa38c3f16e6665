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

An exception may interrupt a caller at any line here, and its `leave` then does the rest. So one
function, `Batch._advance`, looks at the whole state and does what is due. The connection thread,
where no exception of a caller can land, lets the batch nodes join and leave the queue.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary

from distlock.process import in_child

from .contender import Place
from .handoff import MutexPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.dispatch import Signal

    from distlock.keys.znodes import NodeName
    from distlock.session.session import Session


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


def _of_batch_node(name: str, before: object) -> Any:
    """Make a property that reads the batch node's, or `before` there is one; it ignores writes."""

    def of(member: BatchMember) -> Any:
        return before if member.batch_node is None else getattr(member.batch_node, name)

    return property(of, lambda *_: None)


class BatchMember(Place):
    """The place of one who waits for its turn in a batch, and then has it.

    :param turns: how many turns a batch has
    """

    ahead = _of_batch_node("ahead", None)
    was_in_line = _of_batch_node("was_in_line", before=False)
    asked_at = _of_batch_node("asked_at", 0.0)
    head = _of_batch_node("head", "")

    def __init__(self, session: Session, path: str, *, turns: int, **options: Any) -> None:
        #: The node that it holds by, or waits for.
        self.batch_node: BatchNode | None = None
        self.turns = turns
        #: The number of its turn on the node, from 1.
        self.turn = 0
        self._told = False
        super().__init__(session, path, **options)
        self._batch = _batch_at(session, path)

    @property
    def trying(self) -> bool:
        """Whether it does not wait."""
        return self._try_only

    @property
    def over(self) -> bool:
        """Whether it waits no more."""
        return self.granted or self.left

    def join(self) -> None:
        self.session.heartbeat.attend(self)
        self._batch.enter(self)

    def leave(self) -> None:
        if self.granted:
            self.lost  # noqa: B018 - settles it: a lost node is not handed on
        self.left = True
        self.session.heartbeat.dismiss(self)
        self._batch.leave(self)

    @property
    def lost(self) -> bool:
        # The batch_node stands on the same node, by the same lease.
        if self.granted and not self.left and (self.batch_node is None or self.batch_node.lost):
            self._lose("session" if self.batch_node is None else self.batch_node.lost_reason)
        return self._lost

    def lose(self) -> None:
        super().lose()
        if self.batch_node is not None:
            self.batch_node.lose()

    def _give_up(self) -> None:
        # With its node, since what has the next turn on it has the same fencing token.
        if self.granted and not self.left and self.batch_node is not None:
            self._lose("max_hold")
            self.batch_node.lose()
            self._batch.news()
            self.session.heartbeat.hurry()

    def deadline_renewed(self) -> None:
        """The batch_node watches the node."""

    def new_batch_node(self, batch: Batch) -> BatchNode:
        """Return a place whose node says what one of this member would say."""
        data = json.dumps({**json.loads(self._data or b"{}"), "owner": uuid4().hex})
        return BatchNode(
            self.session, self.path, key=self.key, data=data.encode(), settled=batch.news
        )

    def take_turn(self, batch_node: BatchNode) -> None:
        """Have the lock; `settle` is to follow."""
        self.batch_node = batch_node
        self.node = batch_node.node
        self.epoch = batch_node.epoch
        self.turn = batch_node.turns + 1
        self.granted = True

    @property
    def superseded(self) -> bool:
        return self.left and self.batch_node is not None and self.batch_node.turns > self.turn

    def settle(self) -> None:
        """Wake the one who waits, once."""
        if not self._told:
            self._settled()
            self._told = True


class BatchNode(MutexPlace):
    """The node of a batch in the queue. It also settles when it knows the contender ahead."""

    #: A member that waited for an earlier node is behind others until the queue says otherwise.
    queues = False
    #: The member whose turn it is, and how many turns there were.
    turn: BatchMember | None = None
    turns = 0

    def _wait_behind(self, line: list[NodeName], blocking: NodeName) -> None:
        super()._wait_behind(line, blocking)
        self._settled()

    def _step_aside(self, line: list[NodeName]) -> None:
        super()._step_aside(line)
        self._settled()

    def _stand_behind(self, before: MutexPlace) -> None:
        super()._stand_behind(before)
        self._settled()


class Batch:
    """The members of this process that wait for turns at one lock, and their nodes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Reentrant, for a signal handler that takes a lock on top of code that does.
        self._lock = threading.RLock()
        self._waiting: deque[BatchMember] = deque()
        self._batch_node: BatchNode | None = None
        #: The node of the next batch: it joins the queue when half of this one is over.
        self._next: BatchNode | None = None
        #: The nodes that are in the queue; changed on the connection thread only.
        self._joined: set[BatchNode] = set()

    def enter(self, member: BatchMember) -> None:
        """Wait as the last."""
        with self._lock:
            self._waiting.append(member)
            told = self._advance()
            member.batch_node = member.batch_node or self._batch_node
        self._tell(told)

    def leave(self, member: BatchMember) -> None:
        """Wait no more, or end the turn and let the next one have it."""
        with self._lock:
            if not member.granted:
                with suppress(ValueError):
                    self._waiting.remove(member)
            told = self._advance()
        self._tell(told)

    def news(self) -> None:
        """A batch_node has the lock, or has lost it, or knows its place in line, or has failed."""
        with self._lock:
            told = self._advance()
            if self._batch_node is not None and self._batch_node.ahead:
                told = [*told, *(member for member in self._waiting if member.trying)]
        self._tell(told)

    def _batch_node_changed(self, _: Signal) -> None:
        self.news()

    def _advance(self) -> Sequence[BatchMember]:
        """Do what is due, and return who is to be told of it."""
        waiting, batch_node = self._waiting, self._batch_node
        while waiting and waiting[0].over:
            waiting.popleft()
        if batch_node is not None:
            if batch_node.error is not None:
                return self._fail(batch_node)
            if not batch_node.granted:
                if waiting:
                    return ()
            elif not batch_node.lost:
                turn = batch_node.turn
                if turn is not None and turn.granted and not turn.left:
                    self._prepare(batch_node, turn)
                    return (turn,)
                if waiting and (turn is None or batch_node.turns < turn.turns):
                    return (self._give_turn(batch_node),)
        ready, self._next = self._next, None
        if not waiting:
            self._batch_node = None
            return ()
        self._begin(ready or waiting[0].new_batch_node(self), after=batch_node)
        return self._advance() if ready else ()

    def _begin(self, batch_node: BatchNode, after: BatchNode | None) -> None:
        if after is not None and after.was_in_line and batch_node.ahead is None:
            # Its place is not known yet, but who gives up now has waited for others.
            batch_node.ahead, batch_node.was_in_line = 1, True
        self._batch_node = batch_node
        for member in self._waiting:
            member.batch_node = batch_node

    def _give_turn(self, batch_node: BatchNode) -> BatchMember:
        member = batch_node.turn = self._waiting[0]
        if not batch_node.turns:
            batch_node.listen(self._batch_node_changed)
        member.take_turn(batch_node)
        batch_node.turns += 1
        self._waiting.popleft()
        self._prepare(batch_node, member)
        return member

    def _prepare(self, batch_node: BatchNode, turn: BatchMember) -> None:
        """Let the next batch stand in line, if there will be one."""
        if self._next is None and batch_node.turns * 2 > turn.turns:
            first = next((member for member in self._waiting if not member.trying), None)
            if first is not None:
                self._next = first.new_batch_node(self)

    def _fail(self, batch_node: BatchNode) -> Sequence[BatchMember]:
        failed = [*self._waiting]
        for member in failed:
            member.error = batch_node.error
        self._waiting.clear()
        self._batch_node = self._next = None
        return failed

    def _tell(self, told: Sequence[BatchMember]) -> None:
        for member in told:
            member.settle()
        if self._wanted() != self._joined:
            self._session.soon(self._join_and_leave)

    def _wanted(self) -> set[BatchNode]:
        return {
            batch_node for batch_node in (self._batch_node, self._next) if batch_node is not None
        }

    def _join_and_leave(self) -> None:
        while (wanted := self._wanted()) != self._joined:
            joining, leaving = wanted - self._joined, self._joined - wanted
            self._joined = wanted
            for (
                batch_node
            ) in joining:  # before the others leave: who comes next stands in line then
                batch_node.join()
            for batch_node in leaving:
                batch_node.leave()
                batch_node.turn = None  # which knows it, too


_batches: WeakKeyDictionary[Session, WeakValueDictionary[str, Batch]] = WeakKeyDictionary()
_lock = threading.RLock()


def _batch_at(session: Session, path: str) -> Batch:
    """Return the batch of a line; it lives as long as somebody has a member in it."""
    with _lock:
        batches = _batches.get(session)
        if batches is None:  # setdefault would make a dictionary each time
            batches = _batches[session] = WeakValueDictionary()
        batch = batches.get(path)
        if batch is None:
            batch = batches[path] = Batch(session)
        return batch


@in_child
def _forget_the_parent() -> None:
    """In a forked child: a thread of the parent may have had it at the fork."""
    global _lock  # noqa: PLW0603 - one per process
    _lock = threading.RLock()
