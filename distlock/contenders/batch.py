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

Members post what they want. The batches (`turns`) belong to the connection thread, so one function,
`Batch._advance`, looks at the whole state and does what is due.
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
                follower.take_over(self)
        self.session.soon(self._leave)

    def take_over(self, giver: BatchMember) -> None:
        """Have the turn after that of `giver`; from any thread, any number of times."""
        if giver.batch_node is not None:
            self.take_turn(giver.batch_node, giver.turn + 1)
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
            self._batch = batch_at(self.session, self.path)
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
