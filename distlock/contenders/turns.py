"""Gives the members of a batch their turns, and its nodes their places in the queue.

It lives on the connection thread. Members hand turns over among themselves, too: see
`BatchMember.leave`.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from distlock.queue.policies import MUTEX

from .contender import QueuedContender

if TYPE_CHECKING:
    from django.dispatch import Signal

    from distlock.session.session import Session

    from .batch import BatchMember


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
        giver = member.giver
        if giver is not None:
            if giver.take_offer() is None:
                return False
            giver.follower = member.giver = None
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
            turn.follower = follower.giver = None
            with suppress(ValueError):
                self._waiting.remove(follower)
            follower.take_over(turn)  # again, for the thread of the other may have been interrupted
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
batches: WeakKeyDictionary[Session, dict[str, Batch]] = WeakKeyDictionary()


def batch_at(session: Session, path: str) -> Batch:
    """Return the batch of a line; it is there as long as somebody is in it."""
    of_session = batches.get(session)
    if of_session is None:
        of_session = batches[session] = {}
    batch = of_session.get(path)
    if batch is None:
        batch = of_session[path] = Batch(of_session, path)
    return batch
