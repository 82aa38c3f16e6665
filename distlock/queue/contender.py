"""A contender's place in a line: its node, from joining to leaving, through every lost reply.

A `Place` is driven by events: `Place.join` sends its requests at once, and every further step
happens in a completion callback or a watch on the connection thread, which therefore owns all of
the state below. A caller only starts a place, waits until it is settled, and may `leave` it at any
moment: that is a flag and a delete, safe from any thread and from any exception that lands in the
caller. Whether the caller blocks or awaits is not known here, nor is whose turn it is: see `queue`.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from distlock import signals
from distlock.engine.client import ConnectionLost, NoNode, SessionOver
from distlock.engine.deadline import now
from distlock.engine.timer import call_later
from distlock.keys import znodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.dispatch import Signal

    from distlock.engine.client import Done
    from distlock.session.session import Session


@dataclass(frozen=True, slots=True)
class Node:
    """The node of a contender, as the server answered its creation."""

    path: str
    #: The czxid: it rises from holder to holder of one key, over removed parents too.
    token: int
    session_id: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def number(self) -> int:
        """Its number in the queue."""
        return int(znodes.sequence_of(self.name))


class Place:
    """A place in the line under `path`; what kind of line it is, a subclass knows.

    :param key: what is locked, for messages
    :param data: what the node says of its owner
    :param settled: called, from any thread, when the place is granted or has failed
    :param try_only: settle as soon as somebody is ahead
    :param on_revoke: called on the connection thread each time somebody asks to leave
    """

    #: The recipe's part of the node's name.
    kind = znodes.LOCK
    #: Whether others may hold at the same time.
    shared = False
    #: Whether it keeps a node while it waits. Without one it counts as busy until the list is read.
    queues = True
    #: The sequence number that the node is to have, empty for the next one.
    _number = ""
    #: Why the grant was lost.
    lost_reason: Literal["session", "broken", "max_hold"] = "session"
    #: When the hold is given up at the latest, by `heartbeat.now`.
    ends_at = math.inf
    _reported_risk = False

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        key: str,
        data: bytes,
        settled: Callable[[], None],
        try_only: bool = False,
        on_revoke: Callable[[], None] | None = None,
    ) -> None:
        self.session = session
        self.path = path
        self.key = key
        self.node: Node | None = None
        self.granted = False
        #: Whether the caller has given the place up.
        self.left = False
        self.error: Exception | None = None
        #: How many were ahead at the last look; None until the line has been seen.
        self.ahead: int | None = None
        #: Whether the line has ever been seen, with this node or an earlier one.
        self.was_in_line = False
        #: When the server was last asked for a place (`time.monotonic`).
        self.asked_at = 0.0
        #: The path of the first in line at the last look.
        self.head = ""
        self._data = data
        self._settled = settled
        self._try_only = try_only
        self._on_revoke = on_revoke
        self._revoked_at_version = 0
        self._prefix = ""
        #: The path of the one ahead that is watched, and what is called when it changes.
        self._watched = ""
        self._watcher: Callable[[bool], None] = self._watched_changed
        self._parents_error: BaseException | None = None
        #: The lease's epoch of the grant.
        self.epoch = 0
        self._lost = False
        self._watched_own: Node | None = None
        self._listeners: list[Callable[[Signal], None]] = []

    # --- for the caller --------------------------------------------------------------------------

    def join(self) -> None:
        """Enter the line as soon as there is a connection; never blocks."""
        self.session.heartbeat.attend(self)
        self.session.when_connected(self._join)

    def leave(self) -> None:
        """Give the place up, granted or not; the node is deleted for certain. May be repeated."""
        if self.granted:
            self.lost  # noqa: B018 - settles it before the node goes
        self.left = True
        self._hand_over()
        self.session.heartbeat.dismiss(self)
        node = self.node  # read once: the connection thread may be about to forget it
        if node is not None:
            self._delete(node)
        else:
            self._leave_without_a_node()

    def _hand_over(self) -> None:
        """Let another contender of this process have what was given up."""

    def _leave_without_a_node(self) -> None:
        """Take back what a place has that waits without a node."""

    @property
    def standing(self) -> bool:
        """Whether the place's node belongs to the session of now."""
        return self.node is not None and self.node.session_id == self.session.id

    # --- once granted ----------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether the grant is, or was at any moment until it was left, not certain any more."""
        if self._lost or self.left:
            return self._lost
        node, session = self.node, self.session
        if (
            node is None
            or node.session_id != session.id
            or not session.deadline.unbroken(self.epoch)
        ):
            self._lose("session")  # and never back: another thread may know more
        return self._lost

    @property
    def at_risk(self) -> bool:
        """Whether the connection is gone, and the grant is not lost yet."""
        return self.session.deadline.at_risk and self.granted and not (self.left or self.lost)

    def lose(self) -> None:
        """Take note that the node is gone."""
        self._lose("broken")

    def _lose(self, reason: Literal["session", "broken", "max_hold"]) -> None:
        if not self._lost:
            self.lost_reason = reason
            self._lost = True

    def give_up_after(self, max_hold: float) -> None:
        """Give the hold up after so many seconds, if it is still held then."""
        self.ends_at = now() + max_hold
        call_later(max_hold, self._give_up)

    def _give_up(self) -> None:
        """Lose the grant first, and then let the next one have it."""
        node = self.node
        if node is not None and not self.left:
            self._lose("max_hold")
            self._delete(node)
            self.session.heartbeat.hurry()

    def listen(self, listener: Callable[[Signal], None]) -> None:
        """Call `listener`, from some thread, with the signal for each change of the grant.

        `lock_lost` comes once and last. Nothing comes after the place is left, but a loss before.
        """
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[Signal], None]) -> None:
        """Call `listener` no more; without harm where it has gone already."""
        with suppress(ValueError):
            self._listeners.remove(listener)

    def report(self) -> None:
        """Report to the listeners what they do not know yet."""
        if not self._listeners:  # as while it waits
            return
        if self.lost:
            with suppress(IndexError):  # another thread was faster
                while self._listeners:
                    self._listeners.pop()(signals.lock_lost)
        elif not self.left and self.at_risk is not self._reported_risk:
            self._reported_risk = not self._reported_risk
            news = signals.lock_at_risk if self._reported_risk else signals.lock_safe
            for listener in list(self._listeners):
                listener(news)

    def deadline_renewed(self) -> None:
        """Watch the own node from the first heartbeat on: an operator may break the lock."""
        if self.granted or self._on_revoke is not None:
            self._watch_own_node()

    def _watch_own_node(self) -> None:
        node = self.node
        if node is not None and node is not self._watched_own and not self.left:
            self._watched_own = node
            self.session.watch(
                node.path,
                partial(self._own_node_changed, node),
                partial(self._own_node_read, node),
            )

    def _own_node_changed(self, node: Node, deleted: bool) -> None:
        if self.left or node is not self._watched_own:
            return
        self._watched_own = None
        if not deleted and self._on_revoke is not None:
            self._watch_own_node()
        elif deleted:
            self._own_node_gone(node)

    def _own_node_read(self, node: Node, value: Any, error: BaseException | None) -> None:
        if self.left or node is not self._watched_own:
            return
        if error is not None:
            self._watched_own = None
            if isinstance(error, NoNode):
                self._own_node_gone(node)
        elif self._on_revoke is not None:
            data, stat = value
            if data == znodes.REVOKE and stat.version != self._revoked_at_version:
                self._revoked_at_version = stat.version
                self._on_revoke()

    def _own_node_gone(self, node: Node) -> None:
        """Take note that an operator has broken the lock; who waits finds out by the next list."""
        if self.granted:
            self._broken()

    def _broken(self) -> None:
        self.lose()
        self.session.heartbeat.hurry()

    # --- joining ---------------------------------------------------------------------------------

    def _join(self) -> None:
        """Enter the line."""
        if self.left:
            return
        self.node = None
        if self.queues:
            self.ahead = None
        self.asked_at = time.monotonic()
        self._revoked_at_version = 0
        prefix = self._prefix = znodes.protected_prefix()
        self.session.create_contender(
            f"{self.path}/{prefix}{self.kind}{self._number}",
            self._data,
            partial(self._created, prefix),
            self._delete_orphan,
            sequential=not self._number,
            also=self._first_look(prefix),
        )

    def _first_look(self, prefix: str) -> tuple[Any, Done]:
        """Return what is to be asked with the create: the server answers in order."""
        return self.session.make.listing(self.path), partial(self._listed, prefix)

    def _join_anew(self) -> None:
        self.session.when_connected(self._join)

    def _created(self, prefix: str, value: Any, error: BaseException | None) -> None:
        if error is None:
            path, stat = value
            self._stand_on(Node(path, stat.czxid, stat.ephemeralOwner))
        elif isinstance(error, ConnectionLost):
            self.session.when_connected(partial(self._recover, prefix))
        elif isinstance(error, SessionOver):
            self._join_anew()
        elif isinstance(error, NoNode):
            self._make_parents()
        else:
            self._fail(error)

    def _stand_on(self, node: Node) -> None:
        self.node = node
        if self.left:  # after setting the node: `leave` looks at them in the other order
            self._delete(node)
        elif self._on_revoke is not None:
            self._watch_own_node()

    def _delete_orphan(self, value: Any) -> None:
        path, stat = value
        self.session.delete(path, stat.ephemeralOwner)

    def _make_parents(self) -> None:
        """Create the missing parents and join again, all in one round trip."""
        if self._parents_error is not None:
            self._fail(self._parents_error)
            return
        self.session.create_containers(self.path, self._parents_made)
        self._join()

    def _parents_made(self, value: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, SessionOver | ConnectionLost):
            self._parents_error = error

    # --- after a lost reply ----------------------------------------------------------------------

    def _recover(self, prefix: str) -> None:
        """Find out whether the create whose reply was lost has made a node.

        With ``sync``, since the server we are on now may lag behind the one that did it; Curator
        and kazoo look without and may miss their node.
        """
        self.session.children(self.path, partial(self._recovered, prefix), sync=True)

    def _recovered(self, prefix: str, names: Any, error: BaseException | None) -> None:
        if isinstance(error, ConnectionLost):
            self.session.when_connected(partial(self._recover, prefix))
            return
        if error is not None and not isinstance(error, NoNode | SessionOver):
            self._fail(error)
            return
        name = next((name for name in names or () if name.startswith(prefix)), None)
        if name is None:
            self._join_anew()
        else:
            path = f"{self.path}/{name}"
            self.session.read(path, partial(self._found, prefix, path))

    def _found(self, prefix: str, path: str, value: Any, error: BaseException | None) -> None:
        if isinstance(error, ConnectionLost):
            self.session.when_connected(partial(self._recover, prefix))
        elif isinstance(error, NoNode | SessionOver):
            self._join_anew()
        elif error is not None:
            self._fail(error)
        else:
            stat = value[1]
            self._stand_on(Node(path, stat.czxid, stat.ephemeralOwner))
            self._look_again()

    # --- in line ---------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """List the line, or start anew where the node went with its session."""
        if self.left or self.granted or self.node is None:
            return  # a second wake-up by one event: the join that is under way will list the line
        if self.standing:
            self._list(self._prefix)
        else:
            self._start_anew()

    def _start_anew(self) -> None:
        # Our node of an earlier session may still be shown; it never counts (CURATOR-498, -604).
        node, self.node = self.node, None
        if node is not None:
            self._delete(node)
        self._join_anew()

    def _list(self, prefix: str) -> None:
        self.session.children(self.path, partial(self._listed, prefix))

    def _listed(self, prefix: str, names: Any, error: BaseException | None) -> None:
        if prefix != self._prefix or self.node is None or self.left or self.granted:
            return  # the create of this list has failed, and its own callback goes on
        if isinstance(error, ConnectionLost | SessionOver):
            self.session.when_connected(self._look_again)
        elif isinstance(error, NoNode):
            self._start_anew()
        elif error is not None:
            self._fail(error)
        else:
            self._look(self.node, names)

    def _look(self, node: Node, names: list[str]) -> None:
        """Decide: our turn, or whom to wait for."""
        raise NotImplementedError

    def _wait_for(self, name: str) -> None:
        """Look again when this node has changed."""
        watched = self._watched = f"{self.path}/{name}"
        self._watcher = partial(self._ahead_changed, watched)
        self.session.watch(watched, self._watcher, self._watching)
        if self.left:  # after the watch: `leave` looks at them in the other order
            self.session.unwatch(watched, self._watcher)

    def _watching(self, value: Any, error: BaseException | None) -> None:
        if isinstance(error, NoNode):
            self._look_again()
        elif isinstance(error, ConnectionLost | SessionOver):
            self.session.when_connected(self._look_again)
        elif error is not None:
            self._fail(error)

    def _ahead_changed(self, path: str, deleted: bool) -> None:
        """The one that was watched at `path` has changed."""
        self._watched_changed(deleted)

    def _watched_changed(self, deleted: bool) -> None:
        """Look again, whatever happened: the one ahead may have given up in the middle."""
        self.session.when_connected(self._look_again)

    def _grant(self) -> None:
        deadline = self.session.deadline
        self.epoch = deadline.epoch
        if deadline.running:
            self.granted = True
            self._settled()
        else:  # the list may come from a server that is cut off or deposed
            self.session.prove(lambda _: self.session.when_connected(self._look_again))

    def _fail(self, error: BaseException) -> None:
        self.error = self.session.unavailable(self.key, error)
        self._settled()

    def _delete(self, node: Node) -> None:
        watched, self._watched = self._watched, ""
        gone = partial(self._gone, node, watched, self._watcher)
        self.session.delete(node.path, node.session_id, gone)

    def _gone(self, node: Node, watched: str, watcher: Callable[[bool], None]) -> None:
        """Take back the watch that the deleted `node` had on the one ahead."""
        if watched:
            self.session.unwatch(watched, watcher)
