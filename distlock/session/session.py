"""Holds one ZooKeeper session, from its first connection to its end.

Connections come and go on the connection thread, and so do its id and its deadline.
"""

from __future__ import annotations

import time
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from distlock.engine.deadline import TICKS, Heartbeat, now
from distlock.engine.errors import NotConnected, refusal
from distlock.engine.guard import guarded
from distlock.engine.hosts import client_of, settings_of
from distlock.keys.limits import LEAST_TICKS
from distlock.logs.loggers import logger

from .guaranteed_delete import GuaranteedDelete
from .lease_clock import LeaseClock
from .programs import Driver, asking, each
from .requests import SessionRequests
from .watches import SharedWatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.conf import Configuration
    from distlock.engine.protocol import Requests
    from distlock.engine.reply import Done
    from distlock.queue.local_line import Line, Local

    from .programs import Program


_T = TypeVar("_T")

#: How long `Session.close` waits for the server to end the session, in seconds.
CLOSE_SECONDS = 1.0
#: `Session.close` first deletes the nodes if they have this many bytes, so many at a time, and
#: waits this many seconds for that.
MANY_BYTES = 100_000
BATCH = 500
CLOSE_MANY_SECONDS = 5.0

#: Gets the configuration of a session, its id, and its password or None; see `observe_sessions`.
Observer: TypeAlias = "Callable[[Configuration, int, bytes | None], None]"

#: Called when a session begins or ends; see `observe_sessions`.
observers: list[Observer] = []


class Listener(Protocol):
    """Hears of the session's connections."""

    def connection_changed(self) -> None:
        """Take note of a connection that was lost, or of a new one."""


class Session(SessionRequests):
    """This process's session with one ensemble.

    `session_for` makes it. It stays connected by itself for as long as the process lives: after the
    server has expired it, the same object carries the next session, with another `id`.

    :param keep: gets it once it connects, since only its owner can close it from then on
    """

    def __init__(
        self, conf: Configuration, keep: Callable[[Session], object] = lambda _: None
    ) -> None:
        client = client_of(conf, self._connection_changed)
        super().__init__(conf, client)
        #: Where the locks are, with the chroot of ``HOSTS`` before the namespace.
        self.root = settings_of(conf.hosts).chroot(conf.hosts) + conf.namespace
        self.watches = SharedWatches(self, client)
        self.watch, self.unwatch = self.watches.watch, self.watches.unwatch
        self.deletes = GuaranteedDelete(self, client)
        self.delete = self.deletes.delete
        #: Rises with each connection that comes or goes.
        self.connection = 0
        #: The contenders that hear of it; changed on the connection thread.
        self.contenders: set[Listener] = set()
        #: The last contender that came to a line, by its path. A guess: any thread changes it.
        self.newest: dict[str, Any] = {}
        #: The batches of this process, by the path of their line.
        self.batches: dict[str, Any] = {}
        #: The nodes of this process in all lines; changed on the connection thread.
        self.local_nodes: dict[tuple[str, int], Local] = {}
        #: The own nodes of lines that this process watches, by path; likewise.
        self.lines: dict[str, Line] = {}
        #: Appends a step for the connection thread, which takes it the next time it is awake.
        self.post = client.steps.append
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
        try:
            client.connect()
            keep(self)
        except BaseException:  # a soft time limit landed here
            self.close()
            raise

    @property
    def server(self) -> str:
        """Host and port of the connected server, empty without a connection."""
        return self._client.server

    # --- asking ----------------------------------------------------------------------------------

    def run(self, program: Program[_T], *, key: str, timeout: float | None = None) -> _T:
        """Run a caller's program, and wait for its result; see `Driver.call` for what it raises.

        :param key: the key, for the error
        :param timeout: seconds for all of it, by default ``CONNECT_TIMEOUT``
        """
        seconds = self.conf.connect_timeout if timeout is None else timeout
        return Driver(self, key, seconds).call(program).run()

    def call(self, method: Callable[..., None], *args: Any, **how: Any) -> Any:
        """Call a method that makes a request, and wait for its value, as `run` does."""
        return self.run(asking(partial(method, *args)), **how)

    # --- proving, from any thread ----------------------------------------------------------------

    def verify(self, path: str, done: Done) -> None:
        """Read a node as the leader knows it now, and renew the session deadline.

        A question may be repeated, so it outlives a connection that is lost.
        """
        proven: list[bool] = []

        def verified(value: Any, error: BaseException | None) -> None:
            if isinstance(error, NotConnected):
                self.when_connected(partial(self.verify, path, done))
                return
            done(value, error or (None if all(proven) else NotConnected()))

        def ask() -> None:
            self.prove(proven.append)
            self.read(path, verified)

        self.soon(ask)  # on the connection thread, which sends both in one go

    def prove(self, then: Callable[[bool], None]) -> None:
        """Renew the deadline by one request, and call `then` with whether it was acknowledged.

        A deposed leader still answers ``sync`` (`engine.deadline` says for how long), and one that
        was frozen does as soon as it runs again. So ``sync`` only extends a deadline that was
        renewed a moment ago. A renewal that comes late, or after the deadline, is a write, which
        needs a majority.
        """
        late = self.deadline.remaining < self.timeout / 3
        request = self._client.proof(self.root, by_write=self.conf.strict or late)
        sent_at = now()

        def answered(value: Any, error: BaseException | None) -> None:
            acknowledged = (error or refusal(value)) is None
            if acknowledged:
                self.deadline.renew(sent_at, self.timeout)
                if self.deadline.remaining < self.timeout / 6:
                    # This process stood still: its contacts from before are too old, and those
                    # since are too new to count. A new connection counts at once.
                    self._client.drop()
            then(acknowledged)

        # Ahead of a burst of ours, so that a busy link does not look like a dead one.
        self.send(request, answered, first=True)

    def ask_time(self, path: str, done: Done) -> None:
        """Take a reading for `lease_clock` by a write to a node whose data nobody needs."""
        sent = now()

        def answered(stat: Any, error: BaseException | None) -> None:
            if error is None:
                self.lease_clock.note(stat, sent)
            done(stat, error)

        self.write(path, b"", -1, answered)

    # --- states ----------------------------------------------------------------------------------

    def _connection_changed(self, connected: bool, session_id: int) -> None:
        self.id = session_id
        self.connected = connected
        self.watches.thread = get_ident()
        self.connection += 1
        self.round_trip = 0.0
        if not connected:
            self.disconnected_at = self.disconnected_at or time.monotonic()
            self.local_nodes.clear()
            self.lines.clear()
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
        self.deletes.send_again()
        self._tell_contenders()

    def _tell_contenders(self) -> None:
        for contender in tuple(self.contenders):
            guarded(contender.connection_changed)

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
        paths = self.nodes.paths()
        batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
        program = each(
            [partial(self.transact, partial(_deletions, one)) for one in batches], Exception
        )
        self.run(program, timeout=CLOSE_MANY_SECONDS, key=self.root)


def _deletions(paths: list[str], make: Requests) -> list[Any]:
    return [make.deletion(path) for path in paths]
