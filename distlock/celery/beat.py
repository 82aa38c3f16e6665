"""Runs Celery beat on every host of a fleet, and lets one of them send.

::

    celery -A proj beat -S distlock.celery.beat:LeaderScheduler

The hosts queue for the leadership (`leader`). The node ``<root>/@beat/<name>`` has the time at
which each task was last sent. So the next leader sends the tasks that have become due meanwhile,
and no task twice. The node is also the fence: the leader claims each run there before it sends it,
by a write that succeeds only for the current leader.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final

from billiard.util import Finalize
from celery.beat import PersistentScheduler, Scheduler
from celery.utils.log import get_logger

from distlock.engine.errors import BadVersion, NodeExists, NoNode
from distlock.exceptions import LockLost, LockUnavailable
from distlock.keys.templates import znode_name
from distlock.locks.leader import Leader, zk_leader
from distlock.logs.loggers import safe
from distlock.owner.hold import Hold
from distlock.owner.owner import label
from distlock.session.registry import close_sessions, session_for

logger = safe(get_logger(__name__))

#: The seconds between two checks of a beat that does not lead.
LOOK_SECONDS: Final = 1.0


class LeaderMixin(Scheduler):  # type: ignore[misc]  # Celery has no types
    """Lets any beat scheduler send only while it leads the fleet. Write it before the scheduler.

    ::

        class DatabaseLeader(LeaderMixin, DatabaseScheduler): ...

    The beats of one Celery app are one fleet, by the app's name. The setting ``distlock_beat_name``
    sets another name.
    """

    #: The alias in ``DISTLOCK``.
    using: ClassVar[str] = "default"

    _candidate: _Candidate | None = None
    _runs: _Runs | None = None

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send due tasks if this beat leads, and return the seconds until the next look."""
        hold = self._stand().leading()
        if hold is None:
            self._runs = None
            return LOOK_SECONDS
        try:
            if self._runs is None or self._runs.hold is not hold:
                self._take_over(hold)
            return float(super().tick(*args, **kwargs))
        except (LockLost, LockUnavailable) as error:
            logger.warning("beat: Sends nothing for now. %s", error)
            self._runs = None
            return LOOK_SECONDS

    def is_due(self, entry: Any) -> Any:
        self._catch_up(entry)  # a schedule that was loaded anew may not know
        return super().is_due(entry)

    def reserve(self, entry: Any) -> Any:
        if self._runs is not None:
            _ = self.producer  # waits for the broker now, and not after the claim
            self._runs.claim(entry.name, self.schedule)
        return super().reserve(entry)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        if self._runs is not None:
            self._runs.hold.check()
        super().apply_entry(entry, producer=producer)

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._candidate is not None:
                self._candidate.withdraw()

    def _stand(self) -> _Candidate:
        if self._candidate is None:  # not earlier: Celery also makes schedulers that never run
            name = self.app.conf.get("distlock_beat_name") or f"beat:{self.app.main or 'celery'}"
            self._candidate = _Candidate(zk_leader(name, using=self.using))
        if self._candidate.ident is None:  # also after a failed start
            self._candidate.start()
            # The process of ``celery worker -B`` runs no ``atexit``.
            Finalize(None, close_sessions, exitpriority=100)
        return self._candidate

    def _take_over(self, hold: Hold) -> None:
        self._runs = _Runs(hold, self._stand().leader)
        self._initial_read = True  # django-celery-beat's: its table has the runs of others
        for entry in self.schedule.values():
            self._catch_up(entry)
        self._heap = None  # to be filled anew
        logger.info("beat: Leads the fleet (token %d).", hold.token)

    def _catch_up(self, entry: Any) -> None:
        """Let an entry know when another leader has sent it."""
        sent_at = self._runs.sent_at.get(entry.name) if self._runs is not None else None
        if sent_at is not None and sent_at > entry.last_run_at.timestamp():
            entry.last_run_at = datetime.fromtimestamp(sent_at, entry.default_now().tzinfo)


class LeaderScheduler(LeaderMixin, PersistentScheduler):  # type: ignore[misc]  # Celery has no types
    """Celery's own scheduler, which sends only while it leads the fleet."""


class _Candidate(threading.Thread):
    """Queues for the leadership, and leads, beside the loop of beat."""

    def __init__(self, leader: Leader) -> None:
        super().__init__(name="distlock-beat", daemon=True)
        self.leader = leader
        self._hold: Hold | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            with label("celery beat"):
                self.leader.run(self._lead)
        except BaseException as error:  # noqa: BLE001 - raised in the loop of beat, which it ends
            self._error = error

    def _lead(self, hold: Hold) -> None:
        self._hold = hold
        self.leader.stay(None)

    def leading(self) -> Hold | None:
        """Return the hold of the leadership if it is held now."""
        if self._error is not None:
            raise self._error
        hold = self._hold
        return None if hold is None or hold.released or hold.lost else hold

    def withdraw(self) -> None:
        """Leave the queue or the leadership for good; a signal handler may repeat it."""
        self.leader.stop()
        if self.ident is not None:  # its start may have failed
            self.join(2.0)  # seconds for the release of the leadership


class _Runs:
    """The time at which any leader last sent each task, as one version of the node has it."""

    def __init__(self, hold: Hold, leader: Leader) -> None:
        self.hold = hold
        #: Seconds since 1970 by the sender's clock, by the task's name in the schedule.
        self.sent_at: dict[str, float] = {}
        session = self._session = session_for(leader.using)
        self._ask = partial(session.call, key=leader.key)
        self._parent = f"{session.root}/@beat"
        self._path = f"{self._parent}/{znode_name(leader.name)}"
        #: None if there is no node.
        self._version: int | None = None
        try:
            data, stat = self._ask(session.read, self._path)
        except NoNode:
            return
        self._version = stat.version
        try:
            sent_at = json.loads(data)["sent"]
            self.sent_at = {str(name): float(at) for name, at in sent_at.items()}
        except (ValueError, TypeError, LookupError, AttributeError):
            logger.warning("beat: The node of the last runs is unreadable, and is replaced.")

    def claim(self, name: str, scheduled: Collection[str]) -> None:
        """Note that a task is sent now, and forget tasks that are no longer scheduled."""
        self.hold.check()
        sent_at = {known: at for known, at in self.sent_at.items() if known in scheduled}
        self._put({**sent_at, name: time.time()})
        try:
            self.hold.check()  # the write may have waited for a new connection
        except LockLost:
            self._put(sent_at)  # nothing is sent: the next one shall
            raise

    def _put(self, sent_at: dict[str, float]) -> None:
        data = json.dumps({"v": 1, "sent": sent_at}, separators=(",", ":")).encode()
        session = self._session
        try:
            if self._version is None:
                self._ask(session.create_containers, self._parent)
                stat = self._ask(session.create_persistent, self._path, data)[1]
            else:
                stat = self._ask(session.write, self._path, data, self._version)
        except (BadVersion, NodeExists, NoNode) as error:
            raise LockLost(
                f"Another beat has led since {self._path} was read, or somebody has changed it.",
                hold=self.hold,
            ) from error
        self._version, self.sent_at = int(stat.version), sent_at
