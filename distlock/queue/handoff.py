"""A mutex's contender, which takes the lock over from its neighbour without asking the server.

Two rules tell it that it is its turn, without a list of the queue:

- *A neighbour of this process* has the number before ours (see `local_contenders`), so nobody is
  between us. When it releases the lock, we have it: its thread says so. There is no watch, and all
  nodes stay in the one order of all processes. The line is read together with the create: if it is
  older than the neighbour's node, both numbers are of one line.
- *The only one ahead* was a mutex's node, and it is deleted: we are first.

A list would also have shown that our own node is still there. So it is watched from the first
heartbeat on, as a holder's is, and an operator who breaks it is heard.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from distlock.keys import znodes

from .order import FairPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.client import Done
    from distlock.keys.znodes import NodeName

    from .contender import Node


class MutexPlace(FairPlace):
    """A fair place that hands the lock over to its neighbour of the same process."""

    def __init__(self, *args: Any, **options: Any) -> None:
        #: The neighbour that we wait for, and the one that waits for us.
        self.before: MutexPlace | None = None
        self.after: MutexPlace | None = None
        #: The path of the only one ahead, a mutex's, which is watched.
        self._only_ahead = ""
        #: The first in line at the last look.
        self.head_seen = ""
        super().__init__(*args, **options)

    # --- for the caller --------------------------------------------------------------------------

    def _hand_over(self) -> None:
        after = self.after  # after `left`: who comes after looks at the two in the other order
        if after is not None:
            after.take_over(self)
        self.session.local_contenders.leave(self)

    @property
    def head(self) -> str:
        """The path of the first in line, as far as is known."""
        first = self
        while (before := first.before) is not None:
            first = before
        return first.node.path if first.granted and first.node is not None else first.head_seen

    @head.setter
    def head(self, path: str) -> None:
        self.head_seen = path

    # --- local contenders ------------------------------------------------------------------------

    def _first_look(self, prefix: str) -> tuple[Any, Done]:
        if self.session.local_contenders.follow(self):
            return self.session.make.reading(self.path), partial(self._line_read, prefix)
        return super()._first_look(prefix)

    def _stand_on(self, node: Node) -> None:
        super()._stand_on(node)
        if not self.left:
            self.session.local_contenders.enter(self, node.number)

    def _line_read(self, prefix: str, value: Any, error: BaseException | None) -> None:
        """Find the neighbour with the number before ours, or else list the line."""
        node = self.node
        if prefix != self._prefix or node is None or self.left or self.granted:
            return  # the create before this has failed, and its own callback goes on
        number = node.number
        before = None
        if not znodes.is_worn(number):
            before = self.session.local_contenders.at(self.path, number - 1)
        if error is None and before is not None and before.node is not None:
            _, line = value
            if line.czxid < before.node.token:  # it was not begun anew since
                self._stand_behind(before)
                return
        self._list(prefix)

    def _wait_behind(self, line: list[NodeName], blocking: NodeName) -> None:
        before = self.session.local_contenders.at(self.path, blocking.sequence)
        if before is not None and before.node is not None and before.node.name == blocking.name:
            self._stand_behind(before)
        else:
            if blocking is line[0] and blocking.kind == znodes.LOCK:
                self._only_ahead = f"{self.path}/{blocking.name}"
            super()._wait_behind(line, blocking)

    def _stand_behind(self, before: MutexPlace) -> None:
        self.was_in_line = True
        self.before = before
        before.after = self
        if before.left:  # after setting them: `leave` looks at them in the other order
            self.take_over(before)
        if not self.granted:
            self.ahead = (before.ahead or 0) + 1
            if self._try_only:
                self._settled()

    def take_over(self, before: MutexPlace) -> None:
        """Have the lock, if `before` had it; from any thread, and more than once without harm."""
        node = self.node
        if (
            before is self.before
            and before.granted
            and not before.lost
            and self.session.deadline.unbroken(before.epoch)
            and self.standing
            and not self.left
        ):
            self.epoch = before.epoch
            self.ahead = 0
            self.granted = True
            if self.node is not node:  # after: `_start_anew` looks at them in the other order
                self.lose()
            self._settled()
            self.before = None  # last: the one who releases may be interrupted, and does it again

    def _gone(self, node: Node, watched: str, watcher: Callable[[bool], None]) -> None:
        super()._gone(node, watched, watcher)
        self.session.local_contenders.remove(self, node.number)
        self._send_after_away()

    def _send_after_away(self) -> None:
        """Let the neighbour who waits for us, if it still does, find out whom to wait for."""
        after, self.after = self.after, None
        if after is not None and after.before is self:
            after.look_for_itself()

    def part(self) -> None:
        """The connection is lost, and with it what was known of local_contenders."""
        self.after = None
        if self.before is not None:
            self.look_for_itself()

    def look_for_itself(self) -> None:
        """List the line, since the neighbour says nothing any more."""
        self.before = None
        self.session.when_connected(self._look_again)

    # --- what a list would have shown ------------------------------------------------------------

    def _ahead_changed(self, path: str, deleted: bool) -> None:
        if (
            deleted
            and path == self._only_ahead
            and self.standing
            and not (self.left or self.granted)
        ):
            self.ahead = 0
            self._grant()
        else:
            super()._ahead_changed(path, deleted)

    def _start_anew(self) -> None:
        self.before = None
        self._only_ahead = ""
        super()._start_anew()
        if self.granted:  # broken in the instant in which it took over
            self._broken()

    def deadline_renewed(self) -> None:
        if self.before is not None or self._only_ahead:
            self._watch_own_node()
        else:
            super().deadline_renewed()

    def _own_node_gone(self, node: Node) -> None:
        super()._own_node_gone(node)
        if self.granted:
            self._send_after_away()
        elif node is self.node:
            self._start_anew()
