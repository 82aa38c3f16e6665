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

Members wait in a line of their own (`turns`) and hand turns over among themselves; the connection
thread does what concerns the nodes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

from .grant import Grant
from .turns import BatchNode, batch_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.session.session import Session

    from .grant import Reason
    from .turns import Batch


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
        try_only: bool = False,
        on_revoke: None = None,
    ) -> None:
        super().__init__(session)
        self.path = path
        self.key = key
        self.handoff = handoff
        #: Whether it does not wait.
        self.trying = try_only
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
        return node.seen_ahead if node.ahead is None else node.ahead

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
        if self.trying or not batch.runs:
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
        node.listen(lambda _: session.soon(advance))
        return node
