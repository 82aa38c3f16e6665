"""Decides which contender under one path has its turn. No other file does.

The order is Curator's (``LockInternals``): a contender waits for one other and watches nobody else,
so each release wakes one waiter. `contender` has the life of a contender's node.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from distlock.engine.client import ConnectionLost, NoNode, NotEmpty, SessionOver
from distlock.exceptions import IncompatiblePeer, LockLost, LockUnavailable
from distlock.keys import znodes

from .contender import Node, Place
from .policies import first_writer, of_the_other_family, predecessor

if TYPE_CHECKING:
    from distlock.keys.znodes import NodeName


#: For how long only clients that do not begin lines anew may keep us from doing so, in seconds.
WORN_SECONDS = 1.0


class FairPlace(Place):
    """A place that is granted when nobody is ahead: first come, first served.

    Source: Curator's ``StandardLockInternalsDriver``.
    """

    #: The last node of the other family that was read, and is distlock's.
    _compatible = ""
    #: Whether the line is to be begun anew, and since when only worn nodes were seen first in it.
    _worn = False
    _worn_since: float | None = None

    def _look(self, node: Node, names: list[str]) -> None:
        line = znodes.in_line(names)
        if len(line) < len(names):  # not all of them are contenders
            peer = next(filter(znodes.incompatible_recipe, names), None)
            if peer is not None:
                self._refuse_peer(peer, znodes.incompatible_recipe(peer))
                return
        own = next((place for place, other in enumerate(line) if other.name == node.name), None)
        if not self.standing or own is None:
            self._start_anew()  # expired, or broken by an operator (CURATOR-211)
            return
        if znodes.is_worn(line[own].sequence):
            self._worn = self.was_in_line = True
            self.ahead = (
                len(line) - 1 or None
            )  # where nobody is, one who tries waits for the answer
            self._step_aside(line[:own] + line[own + 1 :])
            return
        other = of_the_other_family(line, own) if len(line) > 1 else None
        if other is not None and other.name != self._compatible:
            judge = partial(self._judge, self._prefix, other, names)
            self.session.read(f"{self.path}/{other.name}", judge)
            return
        self.was_in_line = True
        self.head = f"{self.path}/{line[0].name}"
        blocking = self._blocking(line, own)
        self.ahead = own if blocking else 0
        if blocking is None:
            self._grant()
        elif self._try_only:
            self._settled()
        else:
            self._wait_behind(line, blocking)

    #: Returns the one that the contender at an index waits for, None when it is its turn.
    _blocking = staticmethod(predecessor)

    def _wait_behind(self, line: list[NodeName], blocking: NodeName) -> None:
        self._wait_for(blocking.name)

    # --- without a node --------------------------------------------------------------------------

    def _step_aside(self, line: list[NodeName]) -> None:
        """Give the node up, and wait until nobody is in the line, whose other nodes these are.

        It joins again only where it sees an empty line. The next one to join that is first, so one
        of a crowd always is. If they joined at once, each could find the node of another who is
        just about to leave, and leave for that, over and over.
        """
        node, self.node = self.node, None
        if node is not None:
            self._delete(node)
        self._wait_without_a_node(line)

    def _wait_without_a_node(self, line: list[NodeName]) -> None:
        if not line:
            self._line_is_empty()
            return
        first = line[0]
        self.ahead = self.ahead or len(line)
        self.head = f"{self.path}/{first.name}"
        if not (self._worn and znodes.is_worn(first.sequence)):
            self._worn_since = None
        elif self._worn_since is None:
            self._worn_since = time.monotonic()
        if self._try_only:
            self._settled()
        else:
            self._wait_for(first.name)

    def _look_again(self) -> None:
        if self.node is None and self._watched and not self.left:
            self._watched = ""
            self._list_without_a_node()
        else:
            super()._look_again()

    def _list_without_a_node(self) -> None:
        self.session.children(self.path, self._woken)

    def _woken(self, names: Any, error: BaseException | None) -> None:
        if self.left:
            return
        if error is None:
            self._wait_without_a_node(znodes.in_line(names))
        elif isinstance(error, NoNode | SessionOver | ConnectionLost):
            self._join_anew()
        else:
            self._fail(error)

    def _line_is_empty(self) -> None:
        if self._worn:
            self.session.read(self.path, self._worn_line_read)
        else:
            self._join_anew()

    def _worn_line_read(self, value: Any, error: BaseException | None) -> None:
        """Remove the line, whose numbers begin at 0 again then, unless it is more than a line."""
        if self.left:
            return
        if error is not None:
            self._woken(None, error)
            return
        data, stat = value
        if data or stat.version or stat.aversion:
            self.error = LockUnavailable(
                f"{self.path} has come to the end of ZooKeeper's sequence numbers, and has data or "
                "an ACL of somebody's own, so distlock does not remove it. Remove it by hand while "
                f"nobody uses {self.key!r}, and make it again.",
                key=self.key,
                retry_after=self.session.conf.retry_after,
                using=self.session.conf.alias,
            )
            self._settled()
        else:
            self.session.remove(self.path, stat.version, self._worn_line_removed)

    def _worn_line_removed(self, value: Any, error: BaseException | None) -> None:
        if self.left:
            return
        if isinstance(error, NotEmpty):  # somebody has joined it meanwhile
            self._list_without_a_node()
        else:
            self._worn = error is not None
            self._woken([], error)

    def _leave_without_a_node(self) -> None:
        since, self._worn_since = self._worn_since, None
        if since is not None and time.monotonic() - since > WORN_SECONDS and self.error is None:
            self.error = IncompatiblePeer(
                f"{self.head} is near the end of ZooKeeper's sequence numbers, so the line has to "
                "begin anew, and a client that does not know that (Curator, or an older distlock) "
                f"stays in it. Stop the clients of {self.key!r} until nobody is in the line."
            )
        watched = self._watched
        if watched:
            # On the connection thread, where no signal interrupts it.
            self.session.soon(partial(self.session.unwatch, watched, self._watcher))

    # --- peers -----------------------------------------------------------------------------------

    def _judge(
        self, prefix: str, other: NodeName, names: list[str], value: Any, error: Any
    ) -> None:
        """Go on with the line unless `other`, of the other family, is a peer's."""
        if prefix != self._prefix or self.node is None or self.left or self.granted:
            return
        if error is None and znodes.is_peer(value[0]):
            mutex = other.kind == znodes.LOCK
            lock = "InterProcessMutex" if mutex else "InterProcessReadWriteLock"
            self._refuse_peer(other.name, f"Curator's {lock}")
        elif error is None or isinstance(error, NoNode):
            self._compatible = other.name
            self._look(self.node, names)
        else:
            self._watching(value, error)

    def _refuse_peer(self, name: str, recipe: str) -> None:
        self.error = IncompatiblePeer(
            f"{self.path}/{name} is a node of {recipe}, which does not wait for a node such as "
            f"ours: both would believe that they hold {self.key!r}. Use the same recipe on both "
            "sides (docs/reference/curator.md has a table of all pairs), or another path."
        )
        self._settled()


class UnfairPlace(FairPlace):
    """A place of one who does not queue: whoever comes first after a release gets the lock.

    It joins the same line, and leaves it when it is not first. So it excludes, and is excluded by,
    those who queue, Java's too; and while it waits, it has no node and watches the first in line.
    """

    queues = False

    def _wait_behind(self, line: list[NodeName], blocking: NodeName) -> None:
        self._step_aside(line)


class WriterPlace(FairPlace):
    """A writer's place: it is granted when nobody is ahead."""

    kind = znodes.WRITE


class ReaderPlace(FairPlace):
    """A reader's place: it is granted when no writer is ahead.

    It waits for the first of them, as Curator's ``InterProcessReadWriteLock`` does. Any other node
    counts as a writer, so a mutex on the same path keeps readers out.
    """

    kind = znodes.READ
    shared = True

    _blocking = staticmethod(first_writer)


class DowngradedPlace(Place):
    """A reader's place in the very spot of the writer that it was: granted at once.

    The node gets the writer's sequence number, so that queued writers stay behind it when the
    writer's is released (CURATOR-621), and keeps the writer's fencing token.

    :param write: the writer's place, which is granted
    """

    kind = znodes.READ

    def __init__(self, *args: Any, write: Place, **options: Any) -> None:
        super().__init__(*args, **options)
        self._write = write
        self._writer = cast("Node", write.node)
        self._number = znodes.sequence_of(self._writer.name)

    def _join(self) -> None:
        if self._write.lost:
            self._refuse()
        else:
            super()._join()

    def _stand_on(self, node: Node) -> None:
        super()._stand_on(Node(node.path, self._writer.token, node.session_id))

    def _look(self, node: Node, names: list[str]) -> None:
        # An operator may have broken the writer's lock: then the spot beside it is nobody's.
        if self._write.lost or self._writer.name not in names:
            self._refuse()
        elif not self.standing or node.name not in names:
            self._start_anew()
        else:
            self.ahead = 0
            self.was_in_line = True
            self.head = node.path
            self._grant()

    def _refuse(self) -> None:
        self._write.lose()
        self.error = LockLost(f"The write lock {self.key!r} was lost before it became a read lock.")
        self._settled()
