"""Sends requests on a session: the interface that locks, leases and the inspection see.

*It queues no request while disconnected.* A request queued in an outage would be sent long after
its caller has given up (a ghost create). So steps wait in `SessionRequests.when_connected` instead,
and look first whether anybody still wants them.

Each method sends at once and never blocks. ``done`` gets the outcome as (value, error), on the
connection thread. A caller that blocks or awaits runs a program, which makes them (`programs`).
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from distlock.engine.deadline import now
from distlock.engine.errors import (
    NodeExists,
    NoNode,
    NotConnected,
    SessionOver,
    failed_step,
    refusal,
)
from distlock.engine.guard import guarded
from distlock.engine.protocol import CONTAINER, EPHEMERAL, SEQUENTIAL
from distlock.engine.reply import Reply
from distlock.exceptions import LockUnavailable, TooManyLocks
from distlock.keys.limits import SEQUENCE_DIGITS
from distlock.keys.znodes import with_parents

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.conf import Configuration
    from distlock.engine.protocol import EngineClient, Requests
    from distlock.engine.reply import Done

#: The bytes that precede each path in the message. The paths of locks are ASCII.
_LENGTH: Final = 4
#: From this round trip on, a contender spends a request more so that no hand-off waits for an
#: answer, in seconds. On loopback that costs more than it saves.
FAR_SECONDS: Final = 0.0003


class NodeBytes:
    """The ephemeral nodes of a session, which change on the connection thread alone.

    The message that ends the session names each of them. No server can read one that is longer than
    ``jute.maxbuffer`` (1 MiB by default), and it takes the whole ensemble down (ZOOKEEPER-4306).
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: How many bytes they take.
        self.total = 0
        self._sizes: dict[str, int] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._sizes

    def add(self, path: str) -> None:
        """Count a node that was created."""
        if path not in self._sizes:
            size = self._sizes[path] = len(path) + _LENGTH
            self.total += size

    def discard(self, path: str) -> None:
        """Stop counting a node, if it was counted."""
        self.total -= self._sizes.pop(path, 0)

    def clear(self) -> None:
        """Forget the nodes of a session that is over."""
        self._sizes.clear()
        self.total = 0

    def full(self, path: str, under_way: int) -> bool:
        """Whether one more node might exceed the limit, with so many `under_way`."""
        return self.total + (under_way + 1) * (len(path) + _LENGTH + SEQUENCE_DIGITS) > self.limit

    def paths(self) -> list[str]:
        """Return the paths of the nodes."""
        return list(self._sizes)


class SessionRequests:
    """Sends the requests of a session, each on the connection of now; `Session` has the rest."""

    def __init__(self, conf: Configuration, client: EngineClient) -> None:
        self.conf = conf
        self._client = client
        #: The id that ZooKeeper gave the session, 0 while there is none.
        self.id = 0
        #: Whether there is a connection, as far as is known.
        self.connected = False
        #: When the connection was lost (`time.monotonic`), None while there is one.
        self.disconnected_at: float | None = time.monotonic()
        #: The session timeout that the server granted, in seconds; until then, the setting.
        self.timeout = conf.session_timeout
        self.deadline = client.deadline
        #: The shortest of the last round trips on this connection, in seconds; 0.0 at first.
        self.round_trip = 0.0
        #: The steps that wait for a connection.
        self._parked: deque[Callable[[], None]] = deque()
        self._in_flight: set[Reply] = set()
        #: Makes a request that goes along with another.
        self.make: Requests = client
        #: The nodes that end with the session.
        self.nodes = NodeBytes(conf.max_node_bytes)
        #: The containers that this process has made, with their czxid: it may remove them.
        self.made_parents: dict[str, int] = {}
        #: The library's own client on this session, once a user has asked for it.
        self.lent: Any = None
        #: One entry for each create under way.
        self._creating: set[object] = set()

    @property
    def over(self) -> bool:
        """Whether this object is of no use any more: closed, or refused for good."""
        return self._client.stopped

    @property
    def far(self) -> bool:
        """Whether a hand-off would wait for a list, over a link on which that takes long."""
        return self.round_trip >= FAR_SECONDS and not self._client.tells_the_rest

    def note_round_trip(self, seconds: float) -> None:
        """Take note of how long an answer took; of about a hundred the shortest counts."""
        self.round_trip = min(seconds, 1.01 * self.round_trip or seconds)

    # --- sending, from any thread ----------------------------------------------------------------

    def when_connected(self, step: Callable[[], None]) -> None:
        """Run `step` now if there is a connection, or else as soon as there is one."""
        if self.connected:
            step()
            return
        self._parked.append(step)
        if self.connected:  # since just now: one of the two threads finds the step
            self.soon(self._unpark)  # type: ignore[unreachable]  # another thread sets it

    def soon(self, step: Callable[[], None]) -> None:
        """Run `step` on the connection thread as soon as there is a connection; never blocks."""
        try:  # noqa: SIM105 - suppress() makes three calls, at each hand-over
            self._client.soon(step)
        except OSError:  # closed for good in this instant
            pass

    def send(
        self,
        request: Any,
        done: Done,
        *,
        orphan: Callable[[Any], None] | None = None,
        first: bool = False,
        also: tuple[Any, Done] | None = None,
    ) -> None:
        """Send one request; never blocks.

        :param done: gets the outcome; at once and in this thread when there is no connection
        :param orphan: gets a value that arrives after `done` has got a failure
        :param first: send it before the requests that are still queued
        :param also: another request that goes along, and what gets its outcome
        """
        if not self.connected:
            done(None, NotConnected())
            if also is not None:
                also[1](None, NotConnected())
            return
        calls = [(request, Reply(done, orphan, self._in_flight.discard, self.id))]
        if also is not None:
            calls.append((also[0], Reply(also[1], None, self._in_flight.discard, self.id)))
        try:
            for _, reply in calls:
                self._in_flight.add(reply)
            self._client.submit(*calls, first=first)
        except OSError as error:  # closed in this instant
            for _, reply in calls:
                reply.set_exception(NotConnected(str(error)))
        except BaseException:  # a soft time limit landed here
            for _, reply in calls:
                self._in_flight.discard(reply)
            raise

    def _unpark(self) -> None:
        for _ in range(len(self._parked)):  # a step may park another one
            guarded(self._parked.popleft())

    def _fail_forgotten(self) -> None:
        """Fail requests of an earlier session that fell between kazoo's two queues."""
        for reply in list(self._in_flight):
            if reply.session_id != self.id:
                reply.set_exception(SessionOver())

    # --- requests --------------------------------------------------------------------------------

    def create_ephemeral(
        self,
        path: str,
        data: bytes,
        done: Done,
        orphan: Callable[[Any], None],
        *,
        sequential: bool = False,
        also: tuple[Any, Done] | None = None,
    ) -> None:
        """Create an ephemeral node; the value is (path, stat).

        :param path: of a sequential node, all but the number
        :param also: a request that goes along, and what gets its outcome
        """
        if self.nodes.full(path, len(self._creating)):
            done(None, self._too_many_locks())
            return
        flags = EPHEMERAL | SEQUENTIAL if sequential else EPHEMERAL
        sent_at = now()
        entry = object()  # not `created`, which would refer to itself

        def created(value: Any, error: BaseException | None) -> None:
            self._creating.discard(entry)
            if error is None:
                renewed_at = self._client.renewed_at
                self.deadline.renew(sent_at if renewed_at is None else renewed_at, self.timeout)
                self.nodes.add(value[0])
            done(value, error)

        try:
            self._creating.add(entry)
            self.send(self._client.node(path, data, flags), created, orphan=orphan, also=also)
        except BaseException:  # a soft time limit landed here
            self._creating.discard(entry)
            raise

    def create_containers(self, path: str, done: Done, data: bytes = b"") -> None:
        """Create what is missing of `path` and above it, in one round trip.

        The server removes a container after its last child has gone, perhaps between two steps. A
        caller that finds `path` missing again asks again. An upper node that exists, and that we
        may not create, is no error.

        :param data: that of `path`, if it is missing
        """
        errors: list[BaseException] = []

        def created(_: Any, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, NodeExists | NoNode):
                errors.append(error)

        def created_last(value: Any, error: BaseException | None) -> None:
            if error is None:
                self.made_parents[path] = value[1].czxid
            created(value, error)
            there = error is None or isinstance(error, NodeExists)
            done(None, errors[0] if errors and not there else None)

        *above, last = with_parents(path)
        for one in above:
            self.send(self._client.node(one, flags=CONTAINER), created)
        self.send(self._client.node(last, data, CONTAINER), created_last)

    def _too_many_locks(self) -> TooManyLocks:
        return TooManyLocks(
            f"The nodes of this process's session take {self.nodes.total} bytes, and "
            f"MAX_NODE_BYTES allows {self.nodes.limit}. Hold fewer locks at a time, or spread them "
            "over more processes.",
            retry_after=self.conf.retry_after,
            using=self.conf.alias,
        )

    def create_persistent(
        self, path: str, data: bytes, done: Done, *, sequential: bool = False
    ) -> None:
        """Create a node that outlives the session; the value is (path, stat)."""
        self.send(self._client.node(path, data, SEQUENTIAL if sequential else 0), done)

    def write(self, path: str, data: bytes, version: int, done: Done) -> None:
        """Replace a node's data if it has this version, -1 for any. The value is the new stat."""
        self.send(self._client.writing(path, data, version), done)

    def remove(self, path: str, version: int, done: Done) -> None:
        """Delete a node if it has this version, once: `delete` is for our own nodes."""

        def removed(value: Any, error: BaseException | None) -> None:
            if error is None or isinstance(error, NoNode):
                self.nodes.discard(path)
            done(value, error)

        self.send(self._client.deletion(path, version), removed)

    def transact(self, steps: Callable[[Requests], list[Any]], done: Done) -> None:
        """Carry out several writes as one, all or none. The value is the list of their outcomes."""

        def answered(outcomes: Any, error: BaseException | None) -> None:
            error = error or failed_step(outcomes)
            done(None if error else outcomes, error)

        self.send(self._client.multi(steps(self._client)), answered)

    def children(self, path: str, done: Done, *, sync: bool = False) -> None:
        """List the names of the children; with `sync`, with all that was acknowledged before."""
        if not sync:
            self.send(self._client.listing(path), done)
            return
        synced: list[BaseException | None] = []

        def listed(names: Any, error: BaseException | None) -> None:
            # The two may have gone to two servers, when the connection was lost between them.
            done(names, error or synced[0])

        def caught_up(value: Any, error: BaseException | None) -> None:
            synced.append(error or refusal(value))

        self.send(self._client.proof(path, by_write=True), caught_up)
        self.send(self._client.listing(path), listed)

    def read(self, path: str, done: Done) -> None:
        """Read a node; the value is (data, stat)."""
        self.send(self._client.reading(path), done)

    def unavailable(self, key: str, error: BaseException | None = None) -> LockUnavailable:
        """Return the error for a caller that got no answer, or the answer `error`."""
        if isinstance(error, TooManyLocks):
            error.key = key
            return error
        error = error or self._client.trouble
        away = "" if self.disconnected_at is None else self._client.reason
        conf, text = self.conf, self._client.explain(error, away)
        found = LockUnavailable(text, key=key, retry_after=conf.retry_after, using=conf.alias)
        found.__cause__ = error
        return found
