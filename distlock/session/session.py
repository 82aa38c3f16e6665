"""One ZooKeeper session per process and alias: start, fork, states, guaranteed delete.

- *Nothing is queued while disconnected.* A request queued in an outage would be sent long after its
  caller has given up (a ghost create), so steps wait in `Session.when_connected` instead, where
  they look first whether anybody still wants them.
- *A delete is never lost*: it is sent again after every reconnection until it is done or the
  session is gone (Curator's ``FailedDeleteManager``, CURATOR-678).
- *A watch is shared* by all who need it in this process, and taken back when nobody does.

State is changed on the connection thread, unless a method says otherwise.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.signals import setting_changed

from distlock.conf import Configuration, configuration
from distlock.engine.client import (
    TIMED_OUT,
    BadVersion,
    Client,
    ConnectionLost,
    Done,
    NodeExists,
    NoNode,
    NotConnected,
    Reply,
    SessionOver,
    explain,
    failure,
    refusal,
)
from distlock.engine.connection import guarded
from distlock.engine.deadline import TICKS, Heartbeat, SessionDeadline, now
from distlock.exceptions import LockUnavailable, TooManyLocks
from distlock.keys.znodes import with_parents
from distlock.logs.loggers import safe
from distlock.queue.local_contenders import LocalContenders
from distlock.queue.waiting import Latch

from .lease_clock import LeaseClock
from .node_bytes import NodeBytes
from .termination import release_in_commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.requests import Requests

logger = safe(logging.getLogger("distlock"))

#: How long an idle parent node is kept before this process removes it, in seconds. The server
#: removes empty containers too, but at most 10,000 a minute (CURATOR-173).
IDLE_PARENT_SECONDS = 60.0
#: How long an orderly end may take to say good-bye to the server, in seconds.
CLOSE_SECONDS = 1.0
#: From how many bytes of nodes on an orderly end deletes these first, how many nodes at a time, and
#: how long that may take, in seconds.
MANY_BYTES = 100_000
BATCH = 500
CLOSE_MANY_SECONDS = 5.0

#: Makes the client of a session. `distlock.testing` puts one here that needs no server.
new_client: Callable[[Configuration, Callable[[bool], None]], Client] = Client

#: Called with the configuration of a session, its id, and its password or None: `observe_sessions`.
Observer: TypeAlias = "Callable[[Configuration, int, bytes | None], None]"

#: What a watch is on: a path, and whether the names of its children or its own data.
Watched: TypeAlias = tuple[str, bool]


class Session:
    """This process's session with one ensemble, and what must be done on it.

    Made by `session_for`. It connects by itself for as long as the process lives: after the server
    has expired it, the same object carries the next one, with another `id`.
    """

    def __init__(self, conf: Configuration) -> None:
        self.conf = conf
        self._client: Client = new_client(conf, self._connection_changed)
        #: Where the locks are, with the chroot of ``HOSTS`` before the namespace.
        self.root = self._client.chroot + conf.namespace
        #: Since when there has been no connection (`time.monotonic`), None while there is one.
        self.disconnected_at: float | None = time.monotonic()
        #: The steps that wait for a connection.
        self._parked: deque[Callable[[], None]] = deque()
        self._in_flight: set[Reply] = set()
        self._watchers: dict[Watched, set[Callable[[bool], None]]] = {}
        # Requests about watches go out in the order of the changes to _watchers. Reentrant, for the
        # outcome of a request that cannot be sent comes at once.
        self._watching = threading.RLock()
        self._deletes: dict[str, Callable[[], None] | None] = {}
        #: The nodes that end with the session.
        self.nodes = NodeBytes(conf.max_node_bytes)
        #: What is called when the nodes that are being created are there, or not.
        self._creating: set[Done] = set()
        #: The containers that this process has made, with their czxid, and since when they idle.
        self._made_parents: dict[str, int] = {}
        self._idle_parents: dict[str, float] = {}
        #: Who of this process stands next to whom.
        self.local_contenders = LocalContenders()
        #: How long the server cannot yet have expired the session.
        self.deadline = SessionDeadline()
        self._deadline_of = 0
        #: What is known of the server's clock, by which leases of `zk_lease` end.
        self.lease_clock = LeaseClock()
        #: Keeps the lease for the places that attend it.
        self.heartbeat = Heartbeat(
            self.deadline,
            name=f"distlock-{conf.alias}-heartbeat",
            send=self.prove,
            drop=self._client.drop,
            session_timeout=lambda: self.timeout,
        )
        self._client.connect()

    @property
    def id(self) -> int:
        """The id that ZooKeeper gave to the session, 0 before the first connection."""
        return self._client.session_id

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._client.live

    @property
    def began(self) -> bool:
        """Whether it ever had a connection."""
        return bool(self._deadline_of)

    @property
    def server(self) -> str:
        """Host and port of the server that it is connected to, empty without a connection."""
        return self._client.server

    @property
    def over(self) -> bool:
        """Whether this object is of no use any more: closed, or refused for good."""
        return self._client.stopped

    @property
    def timeout(self) -> float:
        """The session timeout that the server granted, in seconds; before that, the one asked."""
        return self._client.session_timeout or self.conf.session_timeout

    # --- sending, from any thread ----------------------------------------------------------------

    def when_connected(self, step: Callable[[], None]) -> None:
        """Run `step` now if there is a connection, or else as soon as there is one."""
        if self.connected:
            step()
            return
        self._parked.append(step)
        if self._client.live:  # since just now: whoever looks second finds the step
            self.soon(self._unpark)

    def soon(self, step: Callable[[], None]) -> None:
        """Run `step` on the connection thread as soon as there is a connection; never blocks."""
        with suppress(OSError):  # closed for ever in this instant, with all that it was about
            self._client.soon(step)

    def send(
        self,
        request: Any,
        done: Done,
        *,
        orphan: Callable[[Any], None] | None = None,
        first: bool = False,
    ) -> None:
        """Send one request; never blocks.

        :param done: gets the outcome; at once and in this thread when there is no connection
        :param orphan: gets a value that arrives after `done` was told of a failure
        :param first: send it before what is still to be sent
        """
        if not self.connected:
            done(None, NotConnected())
            return
        reply = Reply(done, orphan, self._in_flight.discard, self.id)
        try:
            self._in_flight.add(reply)
            self._client.submit(request, reply, first=first)
        except OSError as error:  # closed in this instant
            reply.set_exception(NotConnected(str(error)))
        except BaseException:  # a soft time limit landed here
            self._in_flight.discard(reply)
            raise

    def create_contender(
        self, prefix: str, data: bytes, done: Done, orphan: Callable[[Any], None]
    ) -> None:
        """Create an ephemeral sequential node; the value is (path, stat)."""
        self._create_node(prefix, self._client.contender(prefix, data), done, orphan)

    def create_containers(self, path: str, done: Done) -> None:
        """Create what is missing of `path` and above it, in one round trip.

        The server removes such a node after its last child has gone, and it may do so between two
        steps. Whoever finds `path` missing again asks again. An upper one that is there and may not
        be made by us is no error.
        """
        errors: list[BaseException] = []

        def created(_: Any, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, NodeExists | NoNode):
                errors.append(error)

        def created_last(value: Any, error: BaseException | None) -> None:
            if error is None:
                self._made_parents[path] = value[1].czxid
            created(value, error)
            there = error is None or isinstance(error, NodeExists)
            done(None, errors[0] if errors and not there else None)

        *above, last = with_parents(path)
        for one in above:
            self.send(self._client.container(one), created)
        self.send(self._client.container(last), created_last)

    def create_ephemeral(
        self, path: str, data: bytes, done: Done, orphan: Callable[[Any], None]
    ) -> None:
        """Create an ephemeral node of just this name; the value is (path, stat)."""
        self._create_node(path, self._client.ephemeral(path, data), done, orphan)

    def _create_node(
        self, path: str, request: Any, done: Done, orphan: Callable[[Any], None]
    ) -> None:
        if self.nodes.full(path, len(self._creating)):
            done(None, self._too_many_locks())
            return

        def created(value: Any, error: BaseException | None) -> None:
            self._creating.discard(created)
            if error is None:
                self.nodes.add(value[0])
            done(value, error)

        try:
            self._creating.add(created)
            self.send(request, self._proof(created), orphan=orphan)
        except BaseException:  # a soft time limit landed here
            self._creating.discard(created)
            raise

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
        self.send(self._client.persistent(path, data, sequential=sequential), done)

    def write(self, path: str, data: bytes, version: int, done: Done) -> None:
        """Replace a node's data if it has this version, -1 for any; the value is the new stat."""
        self.send(self._client.writing(path, data, version), done)

    def remove(self, path: str, version: int, done: Done) -> None:
        """Delete a node if it has this version. Not repeated: `delete` is for our own nodes."""

        def removed(value: Any, error: BaseException | None) -> None:
            if error is None or isinstance(error, NoNode):
                self.nodes.discard(path)
            done(value, error)

        self.send(self._client.deletion(path, version), removed)

    def transact(self, steps: Callable[[Requests], list[Any]], done: Done) -> None:
        """Carry out several writes as one, all or none; the value is the list of their outcomes.

        :param steps: makes them: ``lambda make: [make.presence(path), make.deletion(other)]``
        """

        def answered(outcomes: Any, error: BaseException | None) -> None:
            error = error or failure(outcomes)
            done(None if error else outcomes, error)

        self.send(self._client.multi(steps(self._client)), answered)

    def children(self, path: str, done: Done, *, sync: bool = False) -> None:
        """List the names of the children, after what the leader knows now if `sync`."""
        if not sync:
            self.send(self._client.listing(path), done)
            return
        synced: list[BaseException | None] = []

        def listed(names: Any, error: BaseException | None) -> None:
            # The two may have gone to two servers, when the connection was lost between them.
            done(names, error or synced[0])

        self.send(self._client.syncing(path), lambda _, error: synced.append(error))
        self.send(self._client.listing(path), listed)

    def read(self, path: str, done: Done) -> None:
        """Read a node; the value is (data, stat)."""
        self.send(self._client.reading(path), done)

    def read_acl(self, path: str, done: Done) -> None:
        """Read a node's ACL; the value is (acl, stat)."""
        self.send(self._client.acl_reading(path), done)

    def write_acl(self, path: str, done: Done, *, version: int = -1) -> None:
        """Give a node the ACL of the setting if its ACL has this version, -1 for any."""
        self.send(self._client.acl_writing(path, version), done)

    def verify(self, path: str, done: Done) -> None:
        """Read a node as `read` does, as the leader knows it now; renew the lease, too."""
        proven: list[bool] = []

        def verified(value: Any, error: BaseException | None) -> None:
            done(value, error or (None if all(proven) else NotConnected()))

        def ask() -> None:
            self.prove(proven.append)
            self.read(path, verified)

        self.soon(ask)  # on the connection thread, which sends both in one go

    def prove(self, then: Callable[[bool], None]) -> None:
        """Renew the lease by one request, and call `then` with whether it was acknowledged.

        A deposed leader still answers ``sync``: for a tick, or when it was frozen, as soon as it
        runs again. So ``sync`` only carries on a lease that was renewed a moment ago. A renewal
        that comes late, or after the lease has run out, is a write, which needs a majority.
        """
        late = self.deadline.remaining < self.timeout / 3
        request = self._client.proof(self.root, by_write=self.conf.strict or late)
        proof = self._proof(lambda _, error: then(error is None))

        def answered(value: Any, error: BaseException | None) -> None:
            proof(value, error or refusal(value))

        # Before a burst of ours, lest a link that is only busy be taken for a dead one.
        self.send(request, answered, first=True)

    def _proof(self, done: Done) -> Done:
        """Let the answer to a request that is sent now renew the lease."""
        sent_at = now()

        def proved(value: Any, error: BaseException | None) -> None:
            if error is None:
                self.deadline.renew(sent_at, self.timeout)
            done(value, error)

        return proved

    def ask(self, method: Callable[..., None], *args: Any) -> Future[Any]:
        """Call one of the methods above as soon as connected; return a future for its outcome."""
        future = _Answer()

        def done(value: Any, error: BaseException | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def step() -> None:
            if not future.cancelled():  # its caller has given up: nothing is done behind its back
                method(*args, done)

        self.when_connected(step)
        return future

    def answer(self, future: Future[Any], timeout: float, *, key: str) -> Any:
        """Wait for a future of `ask`.

        :param timeout: seconds
        :param key: what it is about, for the message
        :raises NoNode, NodeExists, BadVersion: as the server said
        :raises LockUnavailable: the server did not answer in time, or refused
        """
        try:
            return future.result(timeout)
        except (NoNode, NodeExists, BadVersion):
            raise
        except TIMED_OUT as error:
            future.cancel()
            raise self.unavailable(key) from error
        except Exception as error:
            raise self.unavailable(key, error) from error

    # --- watches ---------------------------------------------------------------------------------

    def watch(
        self, path: str, changed: Callable[[bool], None], done: Done, *, children: bool = False
    ) -> None:
        """Read a node and call ``changed(deleted)`` at its next change, or when the watch is lost.

        A watch is set with getData, never with exists: that would leave one behind on a node that
        is gone (CURATOR-107).

        :param children: list the names of the node's children and watch these instead
        """
        watched = path, children

        def set_or_not(value: Any, error: BaseException | None) -> None:
            with self._watching:
                if error is None:
                    if watched not in self._watchers:  # an earlier watch has fired meanwhile
                        self._remove_watch(watched)
                elif self._discard_watcher(watched, changed):
                    # An earlier watcher's may be left, whose removal found this one in its place.
                    self._client.forget_watchers(path, children=children)
            done(value, error)

        request = self._client.listing if children else self._client.reading
        with self._watching:
            self._watchers.setdefault(watched, set()).add(changed)
            self.send(request(path, partial(self._watch_fired, watched)), set_or_not)

    def unwatch(
        self, path: str, changed: Callable[[bool], None], *, children: bool = False
    ) -> None:
        """Take a watch back, on the server too if nobody else in this process needs it.

        From any thread, and more than once without harm.
        """
        watched = path, children
        with self._watching:
            if self._discard_watcher(watched, changed):
                self._remove_watch(watched)

    def _discard_watcher(self, watched: Watched, changed: Callable[[bool], None]) -> bool:
        """Forget a watcher; tell whether it was the last one."""
        watchers = self._watchers.get(watched)
        if watchers is None or changed not in watchers:
            return False
        watchers.discard(changed)
        if watchers:
            return False
        del self._watchers[watched]
        return True

    def _remove_watch(self, watched: Watched) -> None:
        path, children = watched
        request = self._client.unwatching(path, children=children)
        self.send(request, partial(self._watch_removed, watched))

    def _watch_fired(self, watched: Watched, deleted: bool) -> None:
        with self._watching:
            watchers = self._watchers.pop(watched, set())
        for changed in watchers:
            guarded(changed, deleted)

    def _watch_removed(self, watched: Watched, value: Any, error: BaseException | None) -> None:
        path, children = watched
        with self._watching:
            if watched not in self._watchers:
                self._client.forget_watchers(path, children=children)

    # --- guaranteed delete -----------------------------------------------------------------------

    def delete(self, path: str, session_id: int, gone: Callable[[], None] | None = None) -> None:
        """Delete a node of session `session_id` for certain, without waiting for it.

        From any thread, and more than once without harm.

        :param gone: called on the connection thread when the node is known to be gone
        """
        # Sent again when called again: the first call may have been interrupted before it sent.
        self._deletes.setdefault(path, gone)
        self.when_connected(partial(self._send_delete, path, session_id))

    def _send_delete(self, path: str, session_id: int) -> None:
        if self.id != session_id:  # the node went with its session
            self._delete_settled(path)
        else:
            self.send(self._client.deletion(path), partial(self._deleted, path, session_id))

    def _deleted(self, path: str, session_id: int, value: Any, error: BaseException | None) -> None:
        if isinstance(error, ConnectionLost):
            self.when_connected(partial(self._send_delete, path, session_id))
            return
        if error is not None and not isinstance(error, NoNode | SessionOver):
            logger.error(
                "%s could not be deleted (%r); it stays until this session ends. "
                "Deleting needs the DELETE permission on the parent node.",
                path,
                error,
            )
        self._delete_settled(path)

    def _delete_settled(self, path: str) -> None:
        self.nodes.discard(path)
        gone = self._deletes.pop(path, None)
        if gone is not None:
            gone()
        self._remove_idle_parents(path.rpartition("/")[0])

    def _remove_idle_parents(self, used: str) -> None:
        """Note that `used` was in use just now, and remove two of those idle for a minute.

        Only containers that this process has made: a node of somebody else's may be a lock's path.
        """
        now = time.monotonic()
        self._idle_parents.pop(used, None)
        if used in self._made_parents:
            self._idle_parents[used] = now
        for path, since in list(islice(self._idle_parents.items(), 2)):
            if now - since < IDLE_PARENT_SECONDS:
                break
            del self._idle_parents[path]
            self.read(path, partial(self._remove_parent, path, self._made_parents.pop(path)))

    def _remove_parent(
        self, path: str, czxid: int, value: Any, error: BaseException | None
    ) -> None:
        """Remove a container if it is still the one that was made."""
        if error is None and value[1].czxid == czxid:
            self.send(self._client.deletion(path), _ignore)  # refused while it has children

    # --- states ----------------------------------------------------------------------------------

    def _connection_changed(self, connected: bool) -> None:
        if not connected:
            self.disconnected_at = self.disconnected_at or time.monotonic()
            self.local_contenders.part()
            self.deadline.cut()
            self.heartbeat.hurry()
            return
        self.disconnected_at = None
        first = not self._deadline_of
        if (
            self._deadline_of != self.id
        ):  # what was proven of another session says nothing of this one
            self._deadline_of = self.id
            self.nodes.clear()
            self.deadline.end()
            self._warn_of_short_timeout()
            for notify in _observers:
                guarded(self.notify, notify)
        if not first:  # before the first session nothing was held that could be lost
            self.heartbeat.hurry()
        self._fail_forgotten()
        self._unpark()

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
                granted / 2 * TICKS,
            )

    def _fail_forgotten(self) -> None:
        """Fail what was queued for an earlier session and fell between kazoo's two queues."""
        for reply in list(self._in_flight):
            if reply.session_id != self.id:
                reply.set_exception(SessionOver())

    def notify(self, notify: Observer) -> None:
        """Call `notify` with the configuration, id and password of the session of the moment."""
        notify(self.conf, *self._client.credentials)

    def close(self) -> None:
        """End the session, which frees its locks at once. Waits for the server for one second.

        For longer where there are many nodes, which are deleted first (ZOOKEEPER-4306).
        """
        self.heartbeat.stop()
        if not self.over:
            self._delete_many()
            session_id = self.id
            if self._client.say_goodbye(CLOSE_SECONDS):
                for notify in _observers:
                    guarded(notify, self.conf, session_id, None)

    def _delete_many(self) -> None:
        """Delete the nodes in batches if they are too many for one message."""
        if self.nodes.total < MANY_BYTES or not self.connected:
            return
        paths, deadline = self.nodes.paths(), time.monotonic() + CLOSE_MANY_SECONDS
        batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
        futures = [self.ask(self.transact, partial(_deletions, batch)) for batch in batches]
        wait(futures, max(deadline - time.monotonic(), 0))

    def unavailable(self, key: str, error: BaseException | None = None) -> LockUnavailable:
        """Return the error for a caller whom the server gave no answer, or answered `error`."""
        if isinstance(error, TooManyLocks):
            error.key = key
            return error
        error = error or self._client.trouble
        conf = self.conf
        return LockUnavailable(
            explain(error, conf), key=key, retry_after=conf.retry_after, using=conf.alias
        )


def _deletions(paths: list[str], make: Requests) -> list[Any]:
    return [make.deletion(path) for path in paths]


class _Answer(Future[Any]):
    """A future whose waiter holds no lock that the connection thread needs.

    So a signal handler may take locks on top of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._latch = Latch()
        self.add_done_callback(lambda _: self._latch.open())

    def result(self, timeout: float | None = None) -> Any:
        self._latch.wait(-1 if timeout is None else max(timeout, 0))
        return super().result(0)


def _ignore(value: Any, error: BaseException | None) -> None:
    """For requests whose outcome changes nothing."""


# --- the sessions of this process ----------------------------------------------------------------

_sessions: dict[str, Session] = {}
# Reentrant, for a signal handler that takes a first lock on top of code that does.
_sessions_lock = threading.RLock()
_observers: list[Observer] = []
#: The process that they belong to.
pid = os.getpid()


def observe_sessions(notify: Observer) -> None:
    """Call `notify` with each session of this process when it begins and when it was closed.

    It gets the configuration, the id and the password; None for the password when the session was
    closed in order. It is called now for sessions that have begun, and may be registered again for
    that; then on the connection thread or by whoever closes; in forked children, too.
    """
    if notify not in _observers:
        _observers.append(notify)
    for session in list(_sessions.values()):
        if session.id:
            session.notify(notify)


def session_for(alias: str = "default") -> Session:
    """Return this process's session for `alias`; the first call starts to connect."""
    session = _sessions.get(alias)
    if session is not None and not session.over:
        return session
    conf = configuration(alias)
    with _sessions_lock:
        session = _sessions.get(alias)
        if session is not None and not session.over:
            return session
        if sys.is_finalizing():
            raise LockUnavailable(
                "Python is shutting down, and starts no thread that could connect. Release locks "
                "before the program ends, and take none in __del__().",
                key="",
                using=alias,
            )
        release_in_commands()
        made = Session(conf)
        if _sessions.get(alias) is session:
            _sessions[alias] = made
            _close_when_a_child_ends()
            return made
    made.close()  # a signal handler was faster
    return session_for(alias)


def _close_when_a_child_ends() -> None:
    """See to it that a child of multiprocessing says good-bye too: it runs no ``atexit``."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, close_sessions, exitpriority=100)


def close_sessions() -> None:
    """End all sessions of this process, which frees its locks at once; the next use opens anew."""
    with _sessions_lock:
        sessions = list(_sessions.values())
        _sessions.clear()
    for session in sessions:
        session.close()


#: Kept, so that no finaliser ever closes what still belongs to the parent.
_inherited: list[Session] = []


def _forget_the_parent() -> None:
    """In a forked child: drop the parent's sessions without a word to the server."""
    global pid, _sessions_lock  # noqa: PLW0603 - the parent may have held the lock at the fork
    _inherited.extend(_sessions.values())
    _sessions.clear()
    _sessions_lock = threading.RLock()
    pid = os.getpid()


def _settings_changed(*, setting: str, **_: Any) -> None:
    if setting == "DISTLOCK":
        close_sessions()


os.register_at_fork(after_in_child=_forget_the_parent)
atexit.register(close_sessions)
setting_changed.connect(_settings_changed)
