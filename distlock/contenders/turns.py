"""Gives the members of a batch their turns, and its nodes their places in the queue.

The members of a process wait in one line, and the first in it has the turn. A member joins and
leaves in its own thread. A holder that leaves gives its follower the next turn on its node before
it goes, so a line whose node has the lock is never empty in between. All else is done on the
connection thread: `Batch.advance` looks at the line and the node, and does what is due, any number
of times.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distlock.queue.policies import MUTEX

from .contender import QueuedContender

if TYPE_CHECKING:
    from distlock.session.session import Session

    from .batch import BatchMember


class BatchNode(QueuedContender):
    """The node of a batch in the queue. It also settles when it knows the contender ahead."""

    #: How many were ahead when that was last known: who waited for an earlier node is behind others
    #: until the queue says otherwise.
    seen_ahead: int | None = None

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

    def _waits(self) -> None:
        self.seen_ahead = self.ahead
        self._settled()


class Batch:
    """The members of this process that wait for turns at one lock, and their nodes."""

    def __init__(self, batches: dict[str, Batch], path: str) -> None:
        self._batches = batches
        self._path = path
        #: In the order of arrival. Each adds and removes itself.
        self.line: deque[BatchMember] = deque()
        #: Those of them that do not wait, until they know that they have to.
        self.tries: deque[BatchMember] = deque()
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
        if member.trying:
            self.tries.append(member)

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
            while self.tries:
                self.tries.popleft().settle()
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
        if over is not None and over.was_in_line and node.seen_ahead is None:
            # Its place is not known yet, but who gives up now has waited for others.
            node.seen_ahead, node.was_in_line = 1, True
        self.node, self.next = node, None

    def _prepare(self) -> None:
        """Let the next batch stand in line, if there will be one."""
        if self.next is None and self.node is not None and self.node.half_over:
            waiting = (one for one in self.line.copy() if not (one.trying or one.reserved))
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
    batches = session.batches
    batch = batches.get(path)
    if batch is None:
        batch = batches.setdefault(path, Batch(batches, path))
    return batch
