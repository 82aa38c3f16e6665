"""Examines everything that locks need, and reports findings with advice."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from distlock.checks import check_middleware, check_uwsgi
from distlock.conf import configuration
from distlock.conf.rules import ABOUT_EMBEDDED, REDIS
from distlock.engine.deadline import TICKS
from distlock.engine.zookeeper.ensemble import members
from distlock.engine.zookeeper.ensemble import tick as ensemble_tick
from distlock.exceptions import LockUnavailable
from distlock.keys.limits import LEAST_TICKS, LONGEST_MESSAGE, MOST_TICKS
from distlock.session.bulk_reads import Reads
from distlock.session.engines import client_of, shown
from distlock.session.registry import session_for
from distlock.session.server_time import server_clock
from distlock.session.session import CLOSE_SECONDS

from . import redis_server, rights
from .finding import failure, ok, warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.conf import Configuration
    from distlock.engine.member import Member
    from distlock.session.session import Session

    from .finding import Finding

#: The difference of clocks that is worth a warning, in seconds.
SKEW: Final = 1.0
#: The session timeout to ask for to learn the least one, in seconds: less than any two ticks.
_LEAST: Final = 0.5


def diagnose(using: str = "default", *, timeout: float = 10.0) -> Iterator[Finding]:
    """Check everything that locks need, and yield findings, until something is missing.

    It creates and removes nodes under the namespace, beside the locks.

    :param using: the alias in ``DISTLOCK``
    :param timeout: seconds to wait for a session, and for all questions in it
    """
    try:
        conf = configuration(using)
        redis = conf.engine == REDIS
        ask = redis_server.ask if redis else _ensemble
        reachable, servers = ask(conf, min(timeout, 2.0))
    except ImproperlyConfigured as error:
        yield failure("settings", str(error), "manage.py check tells of all settings.")
        return
    yield _settings(conf)
    for message in check_middleware():
        yield warning("middleware", message.msg, message.hint or "Remove all but the first.")
    for message in check_uwsgi():
        yield failure("threads", message.msg, message.hint or "Enable threads.")
    yield from servers
    if not reachable:
        return
    session = session_for(using)
    reads = Reads(session, timeout)
    started = time.monotonic()
    try:
        reads.connect()
    except LockUnavailable as error:
        yield failure("session", str(error), "Look at the servers above, credentials and TLS.")
        return
    took = time.monotonic() - started
    yield ok("session", f"granted after {took:.2f} s by {session.server}")
    yield _session_timeout(session)
    if not redis:
        yield _ticks(session, reads)
    try:
        yield from rights.findings(reads)
    except LockUnavailable as error:
        yield failure("ACL", str(error), "Look at the servers above.")
        return
    yield _clock(session, reads)


def _settings(conf: Configuration) -> Finding:
    message = f"{conf.namespace} on {shown(conf)}"
    if conf.embedded:
        message += f", {ABOUT_EMBEDDED}"
    if conf.engine != REDIS and conf.max_node_bytes > LONGEST_MESSAGE:
        return warning(
            "settings",
            f"{message}, with MAX_NODE_BYTES = {conf.max_node_bytes}, which is more than a server "
            "reads unless jute.maxbuffer was raised: the end of a process that holds so many locks "
            "would take the ensemble down (ZOOKEEPER-4306).",
            "Raise jute.maxbuffer on all servers well beyond it, or lower the setting.",
        )
    if hasattr(settings, "DISTLOCK"):
        return ok("settings", message)
    return warning(
        "settings",
        f"{message}, since there is no DISTLOCK in the settings.",
        f'Write DISTLOCK = {{"default": {{"HOSTS": "{conf.hosts}"}}}}, with your servers.',
    )


# --- the servers ---------------------------------------------------------------------------------


def _ensemble(conf: Configuration, timeout: float) -> tuple[bool, list[Finding]]:
    """Return whether any server can be reached, and the findings on them."""
    ensemble = members(conf, timeout)
    reachable = any(member.reachable for member in ensemble)
    found = [_server(member, warning if reachable else failure) for member in ensemble]
    if len(ensemble) > 1 and any(member.role == "standalone" for member in ensemble):
        message = (
            "Several servers, and one of them stands alone: they do not share one tree, so a lock "
            "on one does not exclude anybody on another."
        )
        advice = "Join them to one ensemble (server.1=… in zoo.cfg), or name one server in HOSTS."
        found.append(failure("ensemble", message, advice))
    return reachable, found


def _server(member: Member, down: Callable[[str, str, str], Finding]) -> Finding:
    """Return the finding on a server; `down` makes the one on a server that is unreachable."""
    subject = f"server {member.address}"
    if not member.reachable:
        return down(
            subject,
            f"cannot be reached: {member.error}.",
            "Is it running, is the port right, does a firewall stand between? Locks work as long "
            "as a majority of the ensemble does. `manage.py distlock server` runs one for "
            "development.",
        )
    if not member.serving:
        return warning(
            subject,
            "serves nobody: it is in touch with no majority of the ensemble.",
            "Start the other servers, or look at the network between them.",
        )
    if member.error:
        return warning(
            subject,
            f"accepts connections and says nothing: {member.error}.",
            "It hangs, or something else listens there.",
        )
    if not member.role:
        return ok(subject, "reachable; it does not tell its role (4lw.commands.whitelist)")
    return ok(subject, f"{member.role}, {member.version}, {member.seconds * 1000:.0f} ms")


# --- the session ---------------------------------------------------------------------------------


def _session_timeout(session: Session) -> Finding:
    asked, granted = session.conf.session_timeout, session.timeout
    message = f"{granted:g} s granted, {asked:g} s asked for"
    if abs(asked - granted) < 0.001:
        return ok("timeout", message)
    bound = "minSessionTimeout" if granted > asked else "maxSessionTimeout"
    return warning(
        "timeout",
        f"{message}: unless they are told otherwise, the servers allow from {LEAST_TICKS} to "
        f"{MOST_TICKS} ticks.",
        f"Change SESSION_TIMEOUT to {granted:g}, or {bound} of the servers. Locks work with what "
        "is granted.",
    )


def _ticks(session: Session, reads: Reads) -> Finding:
    """Compare the session timeout with the servers' tick: see `engine.deadline`."""
    timeout = session.timeout
    tick, source = ensemble_tick(session.conf, min(reads.left, 2.0)), "tickTime"
    if tick is None:
        shortest = _shortest_timeout(session, reads)
        tick = shortest / LEAST_TICKS
        source = f"half of the shortest timeout granted, {shortest:g} s"
    if not tick:
        return warning(
            "ticks",
            "The servers' tickTime is not known.",
            f"Look it up in zoo.cfg: the session timeout, {timeout:g} s, must be at least {TICKS} "
            "ticks, or STRICT must be set.",
        )
    message = f"the session timeout is {timeout / tick:.3g} ticks of {tick:g} s ({source})"
    if session.conf.strict or timeout >= TICKS * tick - 0.001:
        return ok("ticks", message)
    trusted = timeout * 2 / 3
    return warning(
        "ticks",
        f"{message}, and {TICKS} are needed. A leader that is cut off may answer for a tick after "
        "its followers have left it, and a hold is trusted for two thirds of the timeout after "
        f"that: {tick:g} s + {trusted:.3g} s = {tick + trusted:.3g} s. The next leader may give "
        f"the lock away after {timeout:g} s.",
        f"Set SESSION_TIMEOUT to {TICKS * tick:g} or more, or STRICT to True. A tick that was "
        "found by the shortest timeout is wrong where zoo.cfg sets minSessionTimeout.",
    )


def _shortest_timeout(session: Session, reads: Reads) -> float:
    """Return the least session timeout that the servers grant, in seconds; 0 if unknown."""
    if session.timeout > session.conf.session_timeout:
        return session.timeout
    connected = threading.Event()
    conf = replace(session.conf, session_timeout=_LEAST)
    client = client_of(conf, lambda live, _: connected.set() if live else None)
    client.connect()
    try:
        return client.session_timeout if connected.wait(reads.left) else 0.0
    finally:
        client.say_goodbye(CLOSE_SECONDS)


def _clock(session: Session, reads: Reads) -> Finding:
    clock = server_clock(session, reads.left)
    if not clock.exact:
        return warning(
            "clock",
            "The server's time is not known.",
            "It is told where a node can be made under the namespace; see above.",
        )
    skew = time.time() - clock.now()
    message = f"{abs(skew):.2f} s {'ahead of' if skew > 0 else 'behind'} the server's"
    if abs(skew) < SKEW:
        return ok("clock", message)
    return warning(
        "clock",
        message,
        "Locks do not go by it, but log lines and `since` do. Run NTP on both machines.",
    )
