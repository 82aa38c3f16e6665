"""Holds one ZooKeeper session, from its first connection to its end.

*It queues no request while disconnected.* A request queued in an outage would be sent long after
its caller has given up (a ghost create). So steps wait in `Session.when_connected` instead, and
look first whether anybody still wants them.

State changes on the connection thread, unless a method says otherwise.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from distlock.engine.client import (
    Client,
    Done,
    NotConnected,
    Reply,
    SessionOver,
    refusal,
)
from distlock.engine.deadline import TICKS, Heartbeat, SessionDeadline, now
from distlock.engine.handler import guarded
from distlock.keys.limits import LEAST_TICKS
from distlock.logs.loggers import safe

from .guaranteed_delete import GuaranteedDelete
from .lease_clock import LeaseClock
from .requests import SessionRequests
from .watches import SharedWatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.conf import Configuration
    from distlock.contenders.contender import QueuedContender
    from distlock.contenders.driver import Driver
    from distlock.engine.requests import Requests
    from distlock.queue.local_line import Local

logger = safe(logging.getLogger("distlock"))

#: How long `Session.close` waits for the server to end the session, in seconds.
CLOSE_SECONDS = 1.0
#: `Session.close` first deletes the nodes if they have this many bytes, so many at a time, and
#: waits this many seconds for that.
MANY_BYTES = 100_000
BATCH = 500
CLOSE_MANY_SECONDS = 5.0

#: Makes the client of a session. `distlock.testing` puts one here that needs no server.
new_client: Callable[[Configuration, Callable[[bool, int], None]], Client] = Client

#: Gets the configuration of a session, its id, and its password or None; see `observe_sessions`.
Observer: TypeAlias = "Callable[[Configuration, int, bytes | None], None]"

#: Called when a session begins or ends; see `observe_sessions`.
observers: list[Observer] = []


class Session(SessionRequests):
    """This process's session with one ensemble.

    `session_for` makes it. It stays connected by itself for as long as the process lives: after the
    server has expired it, the same object carries the next session, with another `id`.
    """

    def __init__(self, conf: Configuration) -> None:
        #: The id that ZooKeeper gave the session, 0 while there is none.
        self.id = 0
        #: Whether there is a connection, as far as is known.
        self.connected = False
        #: The session timeout that the server granted, in seconds; until then, the setting.
        self.timeout = conf.session_timeout
        client = new_client(conf, self._connection_changed)
        super().__init__(conf, client)
        #: Where the locks are, with the chroot of ``HOSTS`` before the namespace.
        self.root = client.chroot + conf.namespace
        #: When the connection was lost (`time.monotonic`), None while there is one.
        self.disconnected_at: float | None = time.monotonic()
        #: The steps that wait for a connection.
        self._parked: deque[Callable[[], None]] = deque()
        self._in_flight: set[Reply] = set()
        self.watches = SharedWatches(self, client)
        self.deletes = GuaranteedDelete(self, client)
        #: Rises with each connection that comes or goes.
        self.connection = 0
        #: The contenders that hear of it; changed on the connection thread.
        self.contenders: set[Driver] = set()
        #: The last contender that came to a line, by its path. A guess: any thread changes it.
        self.newest: dict[str, QueuedContender] = {}
        #: The nodes of this process in all lines; changed on the connection thread.
        self.local_nodes: dict[tuple[str, int], Local] = {}
        #: Appends a step for the connection thread, which takes it the next time it is awake.
        self.post = client.steps.append
        self.deadline = SessionDeadline()
        self._deadline_of = 0
        #: The server's clock, by which leases end.
        self.lease_clock = LeaseClock()
        #: Keeps the deadline for the contenders that attend it.
        self.heartbeat = Heartbeat(
            self.deadline,
            name=f"distlock-{conf.alias}-heartbeat",
            send=self.prove,
            drop=client.drop,
            session_timeout=lambda: self.timeout,
        )
        client.connect()

    @property
    def began(self) -> bool:
        """Whether it has ever had a connection."""
        return bool(self._deadline_of)

    @property
    def server(self) -> str:
        """Host and port of the connected server, empty without a connection."""
        return self._client.server

    @property
    def over(self) -> bool:
        """Whether this object is of no use any more: closed, or refused for good."""
        return self._client.stopped

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

    def verify(self, path: str, done: Done) -> None:
        """Read a node as the leader knows it now, and renew the session deadline."""
        proven: list[bool] = []

        def verified(value: Any, error: BaseException | None) -> None:
            done(value, error or (None if all(proven) else NotConnected()))

        def ask() -> None:
            self.prove(proven.append)
            self.read(path, verified)

        self.soon(ask)  # on the connection thread, which sends both in one go

    def prove(self, then: Callable[[bool], None]) -> None:
        """Renew the deadline by one request, and call `then` with whether it was acknowledged.

        A deposed leader still answers ``sync``: for a tick, or when it was frozen, as soon as it
        runs again. So ``sync`` only extends a deadline that was renewed a moment ago. A renewal
        that comes late, or after the deadline, is a write, which needs a majority.
        """
        late = self.deadline.remaining < self.timeout / 3
        request = self._client.proof(self.root, by_write=self.conf.strict or late)
        sent_at = now()

        def answered(value: Any, error: BaseException | None) -> None:
            acknowledged = (error or refusal(value)) is None
            if acknowledged:
                self.deadline.renew(sent_at, self.timeout)
            then(acknowledged)

        # Ahead of a burst of ours, so that a busy link does not look like a dead one.
        self.send(request, answered, first=True)

    # --- watches and deletes ---------------------------------------------------------------------

    def watch(
        self, path: str, changed: Callable[[bool], None], done: Done, *, children: bool = False
    ) -> None:
        """Read a node and watch it; see `SharedWatches.watch`."""
        self.watches.watch(path, changed, done, children=children)

    def unwatch(
        self, path: str, changed: Callable[[bool], None], *, children: bool = False
    ) -> None:
        """Remove a watch; see `SharedWatches.unwatch`."""
        self.watches.unwatch(path, changed, children=children)

    def delete(self, path: str, session_id: int, gone: Callable[[], None] | None = None) -> None:
        """Delete a node for certain; see `GuaranteedDelete.delete`."""
        self.deletes.delete(path, session_id, gone)

    # --- states ----------------------------------------------------------------------------------

    def _connection_changed(self, connected: bool, session_id: int) -> None:
        self.id = session_id
        self.connected = connected
        self.connection += 1
        if not connected:
            self.disconnected_at = self.disconnected_at or time.monotonic()
            self.local_nodes.clear()
            self.deadline.cut()
            self.heartbeat.hurry()
            self._tell_contenders()
            return
        self.disconnected_at = None
        self.timeout = self._client.session_timeout
        first = not self._deadline_of
        if self._deadline_of != self.id:  # proofs of another session say nothing of this one
            self._deadline_of = self.id
            self.nodes.clear()
            self.deadline.end()
            self._warn_of_short_timeout()
            for notify in observers:
                guarded(self.notify, notify)
        if not first:  # before the first session there was nothing to lose
            self.heartbeat.hurry()
        self._fail_forgotten()
        self._unpark()
        self._tell_contenders()

    def _tell_contenders(self) -> None:
        for contender in tuple(self.contenders):
            guarded(contender.connection_changed)

    def _unpark(self) -> None:
        for _ in range(len(self._parked)):  # a step may park another one
            guarded(self._parked.popleft())

    def _warn_of_short_timeout(self) -> None:
        """Warn if the servers have raised the timeout to their minimum, which is two ticks."""
        asked, granted = self.conf.session_timeout, self.timeout
        if granted > asked and not self.conf.strict:
            logger.warning(
                "SESSION_TIMEOUT is %g s, and the servers grant no less than %g s. That is two "
                "ticks, unless minSessionTimeout is set, and too short to notice a lost lock in "
                "time when a leader is cut off. Set SESSION_TIMEOUT to %g or more, or STRICT to "
                "True; `manage.py distlock doctor` shows the arithmetic.",
                asked,
                granted,
                granted / LEAST_TICKS * TICKS,
            )

    def _fail_forgotten(self) -> None:
        """Fail requests of an earlier session that fell between kazoo's two queues."""
        for reply in list(self._in_flight):
            if reply.session_id != self.id:
                reply.set_exception(SessionOver())

    def notify(self, notify: Observer) -> None:
        """Call `notify` with the configuration, id and password of the current session."""
        notify(self.conf, *self._client.credentials)

    def close(self) -> None:
        """End the session, which frees its locks at once. Wait one second for the server.

        With many nodes it takes longer: they are deleted first (ZOOKEEPER-4306).
        """
        self.heartbeat.stop()
        if not self.over:
            self._delete_many()
            session_id = self.id
            if self._client.say_goodbye(CLOSE_SECONDS):
                for notify in observers:
                    guarded(notify, self.conf, session_id, None)

    def _delete_many(self) -> None:
        """Delete the nodes in batches if they are too many for one message."""
        if self.nodes.total < MANY_BYTES or not self.connected:
            return
        paths, deadline = self.nodes.paths(), time.monotonic() + CLOSE_MANY_SECONDS
        batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
        futures = [self.ask(self.transact, partial(_deletions, batch)) for batch in batches]
        wait(futures, max(deadline - time.monotonic(), 0))


def _deletions(paths: list[str], make: Requests) -> list[Any]:
    return [make.deletion(path) for path in paths]
