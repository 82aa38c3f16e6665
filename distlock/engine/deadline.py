"""Keeps the session deadline: the time before which the server cannot expire our session.

ZooKeeper reports the end of a session when client and server talk again. By then it is too late:
another client has the lock. So the session keeps a *deadline* on our own clock. While this process
holds or waits, the heartbeat sends a ``sync`` every sixth of the session timeout T. An answer to a
request that was sent at *s* extends the deadline to min(*s* + ⅔·T, *c* + T - a margin). Here *c* is
when the latest contact was sent that the leader has certainly *counted*:

- Only the leader expires sessions, T or more after the last touch (``SessionTrackerImpl``,
  ``ExpiryQueue.update``). A follower notes the sessions that it hears of
  (``LearnerSessionTracker.touchSession``) and reports them when the leader pings it, twice a tick
  (``Leader.lead``, ``Learner.ping``, ``LearnerHandler``). A request that it forwards does *not*
  touch the session there (``LeaderZooKeeperServer.submitLearnerRequest``). Requests and reports use
  one TCP connection. So an answer from the leader proves that it has counted each contact that the
  follower reported before it forwarded the request: all that had been answered half a tick
  before. Three tenths of T are more than that if T has two ticks (``minSessionTimeout`` unset).
- To connect counts at once: the leader itself touches the session (``Leader.revalidateSession``).
- Reads and pings prove nothing by themselves, but they are contacts. A follower that is cut off
  answers both, long after the leader has expired the session (CURATOR-460 and worse).

A leader that is cut off answers ``sync`` until it notices: it looks once a tick whether a majority
has sent anything for ``syncLimit`` ticks (``Leader.lead``, ``LearnerHandler.synced``). The others
elect another leader, which keeps each session for T (``SessionTrackerImpl``). After a clean cut
they give up when it does, so it answers for a tick longer; ⅔·T plus a tick must not exceed T, and a
timeout has at least `TICKS` ticks. Where the link first loses only what the leader sends, the
requests that its followers still forward prolong its time, by ``syncLimit`` + 1 ticks at most.
Writes need a majority (``STRICT``, and late renewals).

Two faults together, such as these two losses, can still be too much: docs/how-to/production.md,
"Two faults at once".

The clock runs on while the process, or the whole machine, is suspended, but not while a virtual
machine is paused, or is restored from a snapshot.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from .calls import start_thread, this_thread
from .guard import guarded

#: The server ticks that a session timeout must have, unless heartbeats are writes.
TICKS: Final = 3

#: The part of the session timeout that is left when the deadline passes, at least. Clocks do not
#: run alike (ntpd slews them by half a thousandth at most, chrony by its ``maxslewrate``, which is
#: a twelfth unless it is set: docs/how-to/production.md), and a thread has to report the loss.
_MARGIN: Final = 1 / 50
#: How long before a request a contact was answered that the answer proves, in session timeouts.
#: Half a tick, until the leader's next ping, is a quarter at most (a sixth without ``STRICT``), and
#: the ping may be late. The link may have held the contact itself up for longer. Two heartbeats, a
#: third, are more than this: so it costs nothing while answers take less than a thirtieth.
_REPORTED: Final = 3 / 10
#: Contacts this close together, in session timeouts, are noted as one: the first.
_CLOSE: Final = 1 / 100

#: Returns the seconds of a clock that neither jumps nor stops.
now: Final = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SessionDeadline:
    """The time before which the server cannot expire the session.

    A gap between two renewals ends an *epoch*: holds from before the gap are lost for good, even
    if the server kept the session, since somebody may have acted on the loss already.
    """

    def __init__(self) -> None:
        self.epoch = 0
        #: Whether the server has acknowledged nothing since the connection was lost.
        self.at_risk = False
        self._until = 0.0
        #: When the latest contact was sent that the leader has certainly counted; None where the
        #: server that answers is the one that expires sessions, as with Redis and PostgreSQL.
        self._counted: float | None = None
        #: When later ones were sent and answered.
        self._contacts: deque[tuple[float, float]] = deque(maxlen=64)

    @property
    def remaining(self) -> float:
        """Seconds for which the session is certainly alive."""
        return max(self._until - now(), 0.0)

    @property
    def running(self) -> bool:
        """Whether the session is certainly alive."""
        return now() < self._until

    @property
    def contacted_at(self) -> float:
        """When the last contact was sent that was answered and noted."""
        return self._contacts[-1][0] if self._contacts else self._counted or 0.0

    def unbroken(self, epoch: int) -> bool:
        """Whether the session has been certainly alive since this epoch began."""
        # `renew` sets the two in the other order, so a renewal in between revives nothing.
        return now() < self._until and self.epoch == epoch

    def renew(self, sent_at: float, session_timeout: float) -> None:
        """Extend the deadline for a request that was sent at `sent_at`, if the leader answered it.

        Called on the connection thread, as `connected` and `heard` are.
        """
        answered_at = now()
        if answered_at >= self._until:
            self.epoch += 1
        until = sent_at + session_timeout * 2 / 3
        if self._counted is not None:
            contacts = self._contacts
            while contacts and contacts[0][1] <= sent_at - session_timeout * _REPORTED:
                self._counted = contacts.popleft()[0]
            until = min(until, self._counted + session_timeout * (1 - _MARGIN))
            # As in `heard`: a call here would be one more for each acquire.
            if not contacts or sent_at >= contacts[-1][0] + session_timeout * _CLOSE:
                contacts.append((sent_at, answered_at))
        self._until = max(self._until, until)
        self.at_risk = False

    def connected(self, sent_at: float, session_timeout: float) -> None:
        """Note a connection to ZooKeeper for which the request was sent at `sent_at`.

        From the first one on, an answer proves only what the leader has counted. If the timeout is
        shorter than before, the session may end earlier (`ExpiryQueue.update`).
        """
        self._counted = sent_at
        self._contacts.clear()
        self._until = min(self._until, sent_at + session_timeout * (1 - _MARGIN))

    def heard(self, sent_at: float, session_timeout: float) -> None:
        """Note a ping that was sent at `sent_at` and answered, perhaps by a follower alone."""
        contacts = self._contacts
        if not contacts or sent_at >= contacts[-1][0] + session_timeout * _CLOSE:
            contacts.append((sent_at, now()))

    def cut(self) -> None:
        """Note that the connection is lost. Called on the connection thread."""
        self.at_risk = True

    def end(self) -> None:
        """Note that the session is over."""
        self._until = 0.0


class Beneficiary(Protocol):
    """A contender, waiting or granted, that needs the session to stay alive."""

    def deadline_renewed(self) -> None:
        """Take note of an acknowledged heartbeat. Called on the connection thread."""

    def report(self) -> None:
        """Report changes. Called on the heartbeat's thread, and may take its time."""


class Bell:
    """Wakes a thread.

    Unlike `threading.Event`, a signal handler may ring it while interrupting code that rings it.
    """

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Wake the thread now, or at its next `wait`."""
        self._rings.put(None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for a ring, at most `seconds`, and forget all rings so far."""
        with suppress(Empty):
            self._rings.get(timeout=seconds)
            while True:
                self._rings.get_nowait()


class Heartbeat:
    """The thread that renews a deadline while somebody needs it, and notices when that fails.

    It starts with the first beneficiary and sleeps without one. The first heartbeat comes a sixth
    of the session timeout later, so a short hold pays nothing.

    :param send: sends one heartbeat, and calls its argument with whether it was acknowledged
    :param drop: closes a connection that has been silent for a third of the session timeout, so
        that there is time to reach another server before the deadline passes; kazoo would wait
        twice as long, and for ever on a link on which others keep sending
    :param session_timeout: the negotiated one, in seconds
    """

    def __init__(
        self,
        deadline: SessionDeadline,
        *,
        name: str,
        send: Callable[[Callable[[bool], None]], None],
        drop: Callable[[], None],
        session_timeout: Callable[[], float],
    ) -> None:
        self._deadline = deadline
        self._name = name
        self._send = send
        self._drop = drop
        self._session_timeout = session_timeout
        self._beneficiaries: set[Beneficiary] = set()
        #: Whether the thread sleeps until it is needed. Only the thread changes it.
        self._resting = True
        self._needed = Bell()
        self._wake = Bell()
        self._running = threading.Lock()  # taken by the thread that runs, for good
        self._thread: threading.Thread | None = None
        self._unanswered_since: float | None = None
        #: Whether the deadline was at risk when the thread last looked.
        self._was_at_risk = False
        self._stopped = False

    def attend(self, beneficiary: Beneficiary) -> None:
        """Keep the deadline for this one, too. Any thread may call it."""
        self._beneficiaries.add(beneficiary)
        if self._resting:
            self._start()
            self._needed.ring()

    def dismiss(self, beneficiary: Beneficiary) -> None:
        """Stop keeping the deadline for this one. Any thread may call it, any number of times."""
        self._beneficiaries.discard(beneficiary)

    def beneficiaries(self) -> list[Beneficiary]:
        """Return those who need the deadline."""
        return list(self._beneficiaries)

    def hurry(self) -> None:
        """Look now, and beat now: the connection has changed."""
        self._wake.ring()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._needed.ring()
        self._wake.ring()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            start_thread(thread)
            self._thread = thread  # not earlier: the start may fail

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return  # two callers started one each, or the start of the first was interrupted
        this_thread.ours = True
        for bell, seconds in self._beats():
            bell.wait(seconds)

    def _beats(self) -> Iterator[tuple[Bell, float | None]]:
        """Look and beat, and yield what to wait for in between, and for how many seconds."""
        alive = False
        while not self._stopped:
            if self._resting:
                yield self._needed, None
                self._resting = False
            yield self._wake, self._pause(alive)
            alive = self._deadline.running  # before looking for losses: a look may just miss one
            self._was_at_risk = self._deadline.at_risk
            self._report()
            if self._beneficiaries:
                guarded(self._beat)
            else:
                alive = False
                self._resting = True
                if self._beneficiaries:  # somebody came in between
                    self._resting = False

    def _report(self) -> None:
        # In a method of its own: `_run` would keep the last one alive while it sleeps.
        for beneficiary in list(self._beneficiaries):
            guarded(beneficiary.report)

    def _pause(self, alive: bool) -> float:
        """Return the seconds until the next beat, or until the deadline if that is sooner."""
        interval = self._session_timeout() / 6
        remaining = self._deadline.remaining
        return min(interval, remaining) if remaining > 0 or alive else interval

    def _beat(self) -> None:
        since = self._unanswered_since
        if since is None:
            self._unanswered_since = now()
            self._send(self._answered)
        elif now() - since > self._session_timeout() / 3:
            self._drop()

    def _answered(self, acknowledged: bool) -> None:
        self._unanswered_since = None
        if acknowledged:
            for beneficiary in list(self._beneficiaries):
                beneficiary.deadline_renewed()
            if self._was_at_risk and not self._deadline.at_risk:
                self.hurry()  # the holds are safe again
