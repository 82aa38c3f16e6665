"""Describes this process's session and its servers for the admin page."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from django.core.exceptions import ImproperlyConfigured

from distlock.conf import configuration
from distlock.engine.errors import TIMED_OUT
from distlock.exceptions import LockUnavailable
from distlock.session.engines import members
from distlock.session.registry import session_for

if TYPE_CHECKING:
    from distlock.conf import Configuration
    from distlock.engine.deadline import Beneficiary
    from distlock.engine.member import Member
    from distlock.session.session import Session

State: TypeAlias = Literal["connected", "lost", "never"]

#: The seconds for which the servers' answers are shown before they are asked again. Each open page
#: asks every other second, and an old server answers ``srvr`` on the thread that serves clients.
KNOWN_SECONDS: Final = 5.0
#: The seconds that a server may take for its answer.
ANSWER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A session and its servers.

    :ivar state: ``never`` until this process has connected for the first time
    :ivar server: host and port of the connected server, empty without a connection
    :ivar timeout: the session timeout that the server granted, in seconds, 0 before it did
    :ivar latency: seconds for one read, None without an answer
    :ivar held: the number of granted nodes of this process, over all its owners
    :ivar members: the servers of ``HOSTS``, None while they have not answered
    """

    conf: Configuration
    state: State
    server: str
    timeout: float
    disconnected_for: float
    latency: float | None
    held: int
    members: list[Member] | None

    @property
    def timeout_differs(self) -> bool:
        """Whether the server granted another session timeout than the setting."""
        return bool(self.timeout) and abs(self.timeout - self.conf.session_timeout) >= 0.001


def panel(using: str, deadline: float) -> Panel:
    """Return the panel of an alias.

    :param using: the alias in ``DISTLOCK``
    :param deadline: (`time.monotonic`) the time to return, even without all answers
    :raises ImproperlyConfigured: the settings are wrong
    """
    conf = configuration(using)
    asked = ask_members(conf)
    session = session_for(using)
    latency = _latency(session, min(deadline - time.monotonic(), 0.5))
    try:
        answered = asked.result(max(deadline - time.monotonic(), 0))
    except (*TIMED_OUT, CancelledError):
        answered = None
    since = session.disconnected_at
    return Panel(
        conf=conf,
        state=_state(session),
        server=session.server,
        timeout=session.timeout if session.id else 0,
        disconnected_for=time.monotonic() - since if since is not None else 0,
        latency=latency,
        held=_held(session),
        members=answered,
    )


def _state(session: Session) -> State:
    if session.connected:
        return "connected"
    # The id is 0 again once the session has expired.
    return "lost" if session.began else "never"


def _latency(session: Session, timeout: float) -> float | None:
    if not session.connected:
        return None
    started = time.monotonic()
    try:
        # Any read would do; a list of names could be long.
        session.call(session.read, "/", timeout=max(timeout, 0), key="/")
    except LockUnavailable as error:
        if isinstance(error.__cause__, TIMED_OUT) or not session.connected:
            return None  # a refusal is an answer, too
    return time.monotonic() - started


def _held(session: Session) -> int:
    places = session.heartbeat.beneficiaries()
    # A batch counts twice there: the member that has its turn, and the batch node.
    return len({getattr(place, "node", None) for place in places if _granted(place)})


def _granted(place: Beneficiary) -> bool:
    return bool(getattr(place, "granted", False))


# --- the servers ---------------------------------------------------------------------------------

#: The time of the question and the coming answer, by process, and place of the ensemble.
_asked: dict[tuple[int, str, str], tuple[float, Future[list[Member]]]] = {}


def ask_members(conf: Configuration) -> Future[list[Member]]:
    """Ask the servers, unless that is under way or just done; never blocks."""
    known = os.getpid(), conf.alias, conf.hosts
    asked_at, future = _asked.get(known, (0.0, None))
    known_still = time.monotonic() - asked_at < KNOWN_SECONDS
    if future is not None and (known_still or not future.done()):
        return future
    future = Future()
    # A silent name server keeps the thread busy for longer than anybody waits.
    threading.Thread(
        target=_ask, args=(conf, future), name="distlock-ensemble", daemon=True
    ).start()
    _asked[known] = time.monotonic(), future  # not earlier: the start may fail
    return future


def _ask(conf: Configuration, future: Future[list[Member]]) -> None:
    try:
        future.set_result(members(conf, ANSWER_SECONDS))
    except ImproperlyConfigured as error:
        future.set_exception(error)
    finally:
        future.cancel()  # so that nobody waits for it after a failure
