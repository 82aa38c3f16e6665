"""Whose turn it is before a semaphore: the gate, where one at a time waits for leases to come free.

The line at the gate is a fair one of `queue`; what is counted here are the nodes beyond it.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from distlock.engine.client import ConnectionLost, NoNode, SessionOver
from distlock.keys import znodes

from .contender import Place
from .order import FairPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.keys.znodes import NodeName
    from distlock.session.session import Session

    from .semaphore_limits import Limit


class LeasePlace(Place):
    """One lease of a semaphore: a node. When it is made, and whether it counts, `of` decides."""

    kind = znodes.LEASE

    def __init__(self, of: SemaphorePlace, prefix: str) -> None:
        super().__init__(of.session, of.path, key=of.key, data=of.data, settled=_nobody_waits)
        self.shared = of.limit.now > 1
        self._of = of
        self._prefix = prefix

    def make(self) -> None:
        """Send for the node."""
        self._create(self._prefix)

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


class _Gate(FairPlace):
    """A place in the line before a semaphore, which only one may pass at a time."""

    #: Whether the limit and the leases that are taken are being read. The answer says how to go on.
    counting = False

    def __init__(self, of: SemaphorePlace, path: str, passed: Callable[[_Gate], None]) -> None:
        super().__init__(of.session, path, key=of.key, data=of.data, settled=partial(passed, self))
        self._of = of

    def _wait_behind(self, line: list[NodeName], blocking: NodeName) -> None:
        super()._wait_behind(line, blocking)
        self._of.waits_at_gate(self)

    def _step_aside(self, line: list[NodeName]) -> None:
        super()._step_aside(line)
        self._of.waits_at_gate(self)

    def _broken(self) -> None:
        super()._broken()
        self._of.sent_back(self)

    def _make_parents(self) -> None:
        super()._make_parents()
        self._of.make_parent()


class SemaphorePlace(Place):
    """A place before a semaphore: in line at the gate, then among the leases.

    ``<path>/locks`` is the gate, a fair line. Who is first there makes its nodes in
    ``<path>/leases``, has its leases as soon as that has no more nodes than the limit, and leaves
    the gate. So there is one, at the gate, who waits for leases, and no herd; and whoever wants
    several waits there for all of them: no two can have a part each and wait for the rest.

    Safe without the gate, too: who is not within the limit, together with all others, has nothing.
    The nodes that may be there, or may be gone, are made anew: the gate keeps our turn.
    Source: Curator's ``InterProcessSemaphoreV2``.

    :param limit: how many leases there are
    :param wanted: how many to take, all or none
    """

    kind = znodes.LEASE

    def __init__(
        self, session: Session, path: str, *, limit: Limit, wanted: int = 1, **options: Any
    ) -> None:
        super().__init__(session, f"{path}/leases", **options)
        self.limit = limit
        self.data = self._data
        #: What was asked of the server, and what it has granted.
        self.leases: list[LeasePlace] = []
        self._line = f"{path}/locks"
        self._gate: _Gate | None = None
        self._wanted = wanted
        self._made_in = 0
        #: Whether there are watches on the leases.
        self._watching_limit = self._watching_names = False

    # --- for the caller --------------------------------------------------------------------------

    def join(self) -> None:
        """Come to the gate as soon as there is a connection; never blocks."""
        self.session.heartbeat.attend(self)
        self.session.when_connected(self._come_to_gate)

    def leave(self) -> None:
        """Give the place up, granted or not, with all its nodes. May be repeated."""
        self.left = True
        self.session.heartbeat.dismiss(self)
        gate = self._gate
        # A try that ends while the gate was closed was refused, if the gate was ever seen.
        if self.ahead is None and gate is not None and gate.ahead:
            self.ahead = gate.ahead
        self._give_up_leases()  # before the gate, so that the next one finds them gone
        if gate is not None:
            gate.leave()
        if self._watching_limit or self._watching_names:
            self.session.soon(self._unwatch)  # where no signal interrupts it

    @property
    def lost(self) -> bool:
        """Whether not all leases are certain any more."""
        return any(lease.lost for lease in self.leases)

    # --- at the gate -----------------------------------------------------------------------------

    def _come_to_gate(self) -> None:
        """Enter the line, and see in the same go what is written of the leases."""
        if not self.left:
            self._enter_line()

    def _enter_line(self) -> None:
        self.ahead = None
        self.asked_at = time.monotonic()
        gate = self._gate = _Gate(self, self._line, self._at_gate)
        gate.counting = True
        gate.join()
        self._count(gate)
        if self.left:  # after the gate: `leave` looks at them in the other order
            gate.leave()

    def _at_gate(self, gate: _Gate) -> None:
        if gate is not self._gate or self.left:
            return
        if gate.error is not None:
            self.error = gate.error
            self._settled()
        elif gate.counting:
            return  # never past the gate by a limit that may not be the one that is set
        elif self._try_only:
            self._count(gate)
        else:
            self.session.read(self.path, self._limit_read)  # somebody may have set another one
            self._join()

    def _count(self, gate: _Gate) -> None:
        gate.counting = True
        self.session.read(self.path, partial(self._counted, gate))

    def _counted(self, gate: _Gate, value: Any, error: BaseException | None) -> None:
        """Decide whether to go on; one who tries makes no nodes that could be too many.

        Who is at the gate takes a moment if leases are free, and is waited for.
        """
        gate.counting = False
        if gate is not self._gate or self.left or self.granted:
            return
        taken = 0
        if error is None:
            data, stat = value
            self._read_limit(data, stat.version)
            taken = stat.numChildren
        elif isinstance(error, ConnectionLost | SessionOver):
            gate.counting = True
            self.session.when_connected(partial(self._count, gate))
            return
        elif not isinstance(error, NoNode):
            self._fail(error)
            return
        if self._try_only and taken + self._wanted > self.limit.now:
            self._found_taken(taken)
        elif gate.granted and self.error is None:
            self._join()

    def waits_at_gate(self, gate: _Gate) -> None:
        """Others are ahead there."""
        self.was_in_line = True
        if gate is self._gate and not self._try_only:
            self.ahead = gate.ahead

    def sent_back(self, gate: _Gate) -> None:
        """An operator has broken our node at the gate."""
        if gate is self._gate and not self.granted:
            self._start_anew()

    # --- among the leases ------------------------------------------------------------------------

    def _join(self) -> None:
        """Make the nodes of our leases and list all of them in one go, while it is our turn."""
        gate = self._gate
        if self.left or gate is None:
            return
        if gate.standing:
            self._make_leases()
        else:
            self._start_anew()

    def _make_leases(self) -> None:
        self._give_up_leases()
        self.asked_at = time.monotonic()
        self._made_in = self.session.id
        prefix = self._prefix = znodes.protected_prefix()
        self.leases = [LeasePlace(self, prefix) for _ in range(self._wanted)]
        for lease in self.leases:
            lease.make()
        self._list(prefix)
        if self.left:  # after the leases: `leave` looks at them in the other order
            self._give_up_leases()

    def not_made(self, prefix: str, error: BaseException) -> None:
        """The node of a lease was refused, or the answer to its create was lost."""
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
        """Create the parent of the leases together with that of the gate."""
        self.session.create_containers(self.path, self._parents_made)
        self._announce(0)

    def _make_parents(self) -> None:
        super()._make_parents()
        self._announce(0)

    def _look_again(self) -> None:
        """List the leases, or start anew where our place at the gate went with its session."""
        gate = self._gate
        if self.left or self.granted or gate is None or not self._prefix:
            return
        if gate.standing:
            self._list(self._prefix)
        else:
            self._start_anew()

    def _start_anew(self) -> None:
        gate, self._gate = self._gate, None
        self._prefix = ""
        self._give_up_leases()
        if gate is not None:
            gate.leave()
            self.session.when_connected(self._come_to_gate)

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
        if not all(lease.is_among(names) for lease in self.leases):
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
        """Look again when there are other leases, or another limit."""
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
            self._look_again()  # after it, so that the leases are judged by the new limit

    def _limit_read(self, value: Any, error: BaseException | None) -> None:
        if error is None:
            data, stat = value
            self._read_limit(data, stat.version)
        else:  # what has become of the leases, their list tells
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
            for lease in self.leases:
                lease.grant()
            self.node = self.leases[0].node
            self._unwatch()
            self.session.heartbeat.dismiss(self)
            if self._gate is not None:
                self._gate.leave()
        super()._grant()

    def _give_up_leases(self) -> None:
        for lease in self.leases:
            lease.leave()

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
        self.session.write(self.path, self.limit.announcement, version, _ignore)


def _ignore(value: Any, error: BaseException | None) -> None:
    """For requests whose outcome changes nothing."""


def _nobody_waits() -> None:
    """For places that are waited for by way of another one."""
