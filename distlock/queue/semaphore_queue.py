"""Decides whose turn it is at a semaphore: one contender at a time waits for free permits.

The queue in front of the permits is a fair one of `order`. This module counts the permits.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from distlock.engine.client import ConnectionLost, NoNode, SessionOver, ignore
from distlock.keys import znodes

from .contender import Place
from .order import FairPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.keys.znodes import NodeName
    from distlock.session.session import Session

    from .semaphore_limits import Limit


class PermitPlace(Place):
    """One permit of a semaphore: a node. When it is made, and whether it counts, `of` decides."""

    kind = znodes.LEASE

    def __init__(self, of: SemaphorePlace, prefix: str) -> None:
        super().__init__(of.session, of.path, key=of.key, data=of.data, settled=_nobody_waits)
        self.shared = of.limit.now > 1
        self._of = of
        self._prefix = prefix

    def make(self) -> None:
        """Send for the node."""
        self.session.create_contender(
            f"{self.path}/{self._prefix}{self.kind}",
            self._data,
            partial(self._created, self._prefix),
            self._delete_orphan,
        )

    def is_among(self, names: list[str]) -> bool:
        """Whether it is there, and not of an earlier session (CURATOR-604)."""
        return self.standing and self.node is not None and self.node.name in names

    def grant(self) -> None:
        """It counts: keep it, and tell when it is lost."""
        self.epoch = self.session.deadline.epoch
        self.granted = True
        self.session.heartbeat.attend(self)
        if self.left:  # after attending: `leave` looks at them in the other order
            self.session.heartbeat.dismiss(self)

    def _created(self, prefix: str, value: Any, error: BaseException | None) -> None:
        if error is None:
            super()._created(prefix, value, error)
        else:
            self._of.not_made(prefix, error)


class _QueueEntry(FairPlace):
    """A place in the line before a semaphore, which only one may pass at a time."""

    #: Whether it is reading the limit and the number of permits in use. The answer decides.
    counting = False

    def __init__(
        self, of: SemaphorePlace, path: str, passed: Callable[[_QueueEntry], None]
    ) -> None:
        super().__init__(of.session, path, key=of.key, data=of.data, settled=partial(passed, self))
        self._of = of

    def _wait_behind(self, line: list[NodeName], blocking: NodeName) -> None:
        super()._wait_behind(line, blocking)
        self._of.waits_in_queue(self)

    def _step_aside(self, line: list[NodeName]) -> None:
        super()._step_aside(line)
        self._of.waits_in_queue(self)

    def _broken(self) -> None:
        super()._broken()
        self._of.sent_back(self)

    def _make_parents(self) -> None:
        super()._make_parents()
        self._of.make_parent()


class SemaphorePlace(Place):
    """A place before a semaphore: in the queue, then among the permits.

    ``<path>/locks`` is the queue, a fair one. The first contender there makes its nodes in
    ``<path>/leases``, has its permits as soon as that has no more nodes than the limit, and leaves
    the queue. So only one contender waits for permits, without a herd; and one that wants several
    waits there for all of them: no two can have a part each and wait for the rest.

    Safe without the queue, too: a contender beyond the limit, counted with all others, has nothing.
    The nodes that may be there, or may be gone, are made anew: the entry keeps our turn.
    Source: Curator's ``InterProcessSemaphoreV2``.

    :param limit: how many permits there are
    :param wanted: how many to take, all or none
    """

    kind = znodes.LEASE

    def __init__(
        self, session: Session, path: str, *, limit: Limit, wanted: int = 1, **options: Any
    ) -> None:
        super().__init__(session, f"{path}/leases", **options)
        self.limit = limit
        self.data = self._data
        #: The permits that it has asked the server for, granted or not.
        self.permits: list[PermitPlace] = []
        self._line = f"{path}/locks"
        self._entry: _QueueEntry | None = None
        self._wanted = wanted
        self._made_in = 0
        #: Whether there are watches on the permits.
        self._watching_limit = self._watching_names = False

    # --- for the caller --------------------------------------------------------------------------

    def join(self) -> None:
        """Come to the entry as soon as there is a connection; never blocks."""
        self.session.heartbeat.attend(self)
        self.session.when_connected(self._come_to_queue)

    def leave(self) -> None:
        """Give the place up, granted or not, with all its nodes. May be repeated."""
        self.left = True
        self.session.heartbeat.dismiss(self)
        entry = self._entry
        # A try that ends while the entry was closed was refused, if the entry was ever seen.
        if self.ahead is None and entry is not None and entry.ahead:
            self.ahead = entry.ahead
        self._give_up_permits()  # before the entry, so that the next one finds them gone
        if entry is not None:
            entry.leave()
        if self._watching_limit or self._watching_names:
            self.session.soon(self._unwatch)  # where no signal interrupts it

    @property
    def lost(self) -> bool:
        """Whether not all permits are certain any more."""
        return any(permit.lost for permit in self.permits)

    # --- in the queue -----------------------------------------------------------------------------

    def _come_to_queue(self) -> None:
        """Enter the line, and see in the same go what is written of the permits."""
        if not self.left:
            self._enter_line()

    def _enter_line(self) -> None:
        self.ahead = None
        self.asked_at = time.monotonic()
        entry = self._entry = _QueueEntry(self, self._line, self._at_head)
        entry.counting = True
        entry.join()
        self._count(entry)
        if self.left:  # after the entry: `leave` looks at them in the other order
            entry.leave()

    def _at_head(self, entry: _QueueEntry) -> None:
        if entry is not self._entry or self.left:
            return
        if entry.error is not None:
            self.error = entry.error
            self._settled()
        elif entry.counting:
            return  # never past the entry by a limit that may not be the one that is set
        elif self._try_only:
            self._count(entry)
        else:
            self.session.read(self.path, self._limit_read)  # somebody may have set another one
            self._join()

    def _count(self, entry: _QueueEntry) -> None:
        entry.counting = True
        self.session.read(self.path, partial(self._counted, entry))

    def _counted(self, entry: _QueueEntry, value: Any, error: BaseException | None) -> None:
        """Decide whether to go on; one who tries makes no nodes that could be too many.

        If permits are free, the contender in the queue takes a moment, and this one waits for it.
        """
        entry.counting = False
        if entry is not self._entry or self.left or self.granted:
            return
        taken = 0
        if error is None:
            data, stat = value
            self._read_limit(data, stat.version)
            taken = stat.numChildren
        elif isinstance(error, ConnectionLost | SessionOver):
            entry.counting = True
            self.session.when_connected(partial(self._count, entry))
            return
        elif not isinstance(error, NoNode):
            self._fail(error)
            return
        if self._try_only and taken + self._wanted > self.limit.now:
            self._found_taken(taken)
        elif entry.granted and self.error is None:
            self._join()

    def waits_in_queue(self, entry: _QueueEntry) -> None:
        """Others are ahead there."""
        self.was_in_line = True
        if entry is self._entry and not self._try_only:
            self.ahead = entry.ahead

    def sent_back(self, entry: _QueueEntry) -> None:
        """An operator has broken our node in the queue."""
        if entry is self._entry and not self.granted:
            self._start_anew()

    # --- among the permits ------------------------------------------------------------------------

    def _join(self) -> None:
        """Make the nodes of our permits and list all of them in one go, while it is our turn."""
        entry = self._entry
        if self.left or entry is None:
            return
        if entry.standing:
            self._make_permits()
        else:
            self._start_anew()

    def _make_permits(self) -> None:
        self._give_up_permits()
        self.asked_at = time.monotonic()
        self._made_in = self.session.id
        prefix = self._prefix = znodes.protected_prefix()
        self.permits = [PermitPlace(self, prefix) for _ in range(self._wanted)]
        for permit in self.permits:
            permit.make()
        self._list(prefix)
        if self.left:  # after the permits: `leave` looks at them in the other order
            self._give_up_permits()

    def not_made(self, prefix: str, error: BaseException) -> None:
        """The node of a permit was refused, or the answer to its create was lost."""
        if prefix == self._prefix:
            self._prefix = ""  # once for all nodes of one go, and not for its list
            self._created(prefix, None, error)

    def _recovered(self, prefix: str, names: Any, error: BaseException | None) -> None:
        if isinstance(error, ConnectionLost):
            self.session.when_connected(partial(self._recover, prefix))
        elif error is not None and not isinstance(error, NoNode | SessionOver):
            self._fail(error)
        else:
            for name in names or ():
                if name.startswith(prefix):
                    self.session.delete(f"{self.path}/{name}", self._made_in)
            self._join()

    def make_parent(self) -> None:
        """Create the parent of the permits together with that of the queue."""
        self.session.create_containers(self.path, self._parents_made)
        self._announce(0)

    def _make_parents(self) -> None:
        super()._make_parents()
        self._announce(0)

    def _look_again(self) -> None:
        """List the permits, or start anew where our place in the queue went with its session."""
        entry = self._entry
        if self.left or self.granted or entry is None or not self._prefix:
            return
        if entry.standing:
            self._list(self._prefix)
        else:
            self._start_anew()

    def _start_anew(self) -> None:
        entry, self._entry = self._entry, None
        self._prefix = ""
        self._give_up_permits()
        if entry is not None:
            entry.leave()
            self.session.when_connected(self._come_to_queue)

    def _listed(self, prefix: str, names: Any, error: BaseException | None) -> None:
        if prefix != self._prefix or self.left or self.granted:
            return  # the creates of this list have failed, and their own callback goes on
        if error is None:
            self._see(names)
            return
        self._watching_names = False
        if isinstance(error, ConnectionLost | SessionOver):
            self.session.when_connected(self._look_again)
        elif isinstance(error, NoNode):
            self._join()
        else:
            self._fail(error)

    def _see(self, names: list[str]) -> None:
        """Decide: within the limit, or too many."""
        self.was_in_line = True
        if not all(permit.is_among(names) for permit in self.permits):
            self._join()  # broken by an operator (CURATOR-211)
        elif len(names) <= self.limit.now:
            self._grant()
        elif self._try_only:
            self._found_taken(len(names))
        else:
            self.ahead = len(names) - self.limit.now
            self._wait()

    def _found_taken(self, taken: int) -> None:
        self.was_in_line = True
        self.ahead = taken
        self._settled()

    def _wait(self) -> None:
        """Look again when there are other permits, or another limit."""
        self._watch_limit()
        if not self._watching_names:
            self._watching_names = True
            listed = partial(self._listed, self._prefix)
            self.session.watch(self.path, self._watched_changed, listed, children=True)
        if self.left:  # after the watches: `leave` looks at them in the other order
            self._unwatch()

    def _watch_limit(self) -> None:
        if not self._watching_limit:
            self._watching_limit = True
            self.session.watch(self.path, self._limit_changed, self._limit_read)

    def _watched_changed(self, deleted: bool) -> None:
        self._watching_names = False
        super()._watched_changed(deleted)

    def _limit_changed(self, deleted: bool) -> None:
        self._watching_limit = False
        self.session.when_connected(self._look_at_limit)

    def _look_at_limit(self) -> None:
        if not self.left and not self.granted:
            self._watch_limit()
            self._look_again()  # after it, so that the permits are judged by the new limit

    def _limit_read(self, value: Any, error: BaseException | None) -> None:
        if error is None:
            data, stat = value
            self._read_limit(data, stat.version)
        else:  # what has become of the permits, their list tells
            self._watching_limit = False

    def _unwatch(self) -> None:
        if self._watching_limit:
            self._watching_limit = False
            self.session.unwatch(self.path, self._limit_changed)
        if self._watching_names:
            self._watching_names = False
            self.session.unwatch(self.path, self._watched_changed, children=True)

    def _grant(self) -> None:
        if self.session.deadline.running:
            for permit in self.permits:
                permit.grant()
            self.node = self.permits[0].node
            self._unwatch()
            self.session.heartbeat.dismiss(self)
            if self._entry is not None:
                self._entry.leave()
        super()._grant()

    def _give_up_permits(self) -> None:
        for permit in self.permits:
            permit.leave()

    # --- the limit -------------------------------------------------------------------------------

    def _read_limit(self, data: bytes, version: int) -> None:
        if self.limit.read(data):
            self._announce(version)
        if self._wanted > self.limit.now and not (self.granted or self.left):
            # It would wait for ever at the head of the line, and everybody behind it.
            self.error = self.limit.refusal(self._wanted)
            self._settled()

    def _announce(self, version: int) -> None:
        """Write what our limit is, unless somebody was faster; not waited for."""
        self.session.write(self.path, self.limit.announcement, version, ignore)


def _nobody_waits() -> None:
    """For places that are waited for by way of another one."""
