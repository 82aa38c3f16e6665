"""Examines everything that locks need, and reports findings with advice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from distlock.checks import check_middleware, check_uwsgi
from distlock.conf import configuration
from distlock.engine.bulk_reads import Reads
from distlock.engine.client import NodeExists, NoNode
from distlock.engine.deadline import TICKS
from distlock.engine.ensemble import members
from distlock.engine.ensemble import tick as ensemble_tick
from distlock.exceptions import LockUnavailable
from distlock.inspection.tree import snapshot
from distlock.keys.limits import LEAST_TICKS, LONGEST_MESSAGE, MOST_TICKS
from distlock.keys.znodes import LOCK, clipped, protected_prefix
from distlock.session import session as sessions
from distlock.session.node_bytes import size_of
from distlock.session.registry import session_for
from distlock.session.server_time import server_clock
from distlock.session.session import CLOSE_SECONDS

from . import access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.conf import Configuration
    from distlock.engine.ensemble import Member
    from distlock.session.session import Session

Level: TypeAlias = Literal["ok", "warning", "error"]

#: The difference of clocks that is worth a warning, in seconds.
SKEW: Final = 1.0
#: The session timeout to ask for to learn the least one, in seconds: less than any two ticks.
_LEAST: Final = 0.5
#: The number of nodes whose ACLs are checked.
_ACLS: Final = 1000
_PERMISSIONS: Final = {
    "c": "create",
    "d": "delete",
    "r": "read",
    "w": "write",
    "a": "set ACLs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    :ivar level: ``ok``; ``warning``, it works and could be better; ``error``, locks do not work
    :ivar subject: the subject of the check, in a word
    :ivar message: the result
    :ivar advice: the remedy, empty without a problem
    """

    level: Level
    subject: str
    message: str
    advice: str = ""


def diagnose(using: str = "default", *, timeout: float = 10.0) -> Iterator[Finding]:
    """Check everything that locks need, and yield findings, until something is missing.

    It creates and removes nodes under the namespace, beside the locks.

    :param using: the alias in ``DISTLOCK``
    :param timeout: seconds to wait for a session, and for all questions in it
    """
    try:
        conf = configuration(using)
        ensemble = members(conf, min(timeout, 2.0))
        session = session_for(using)
    except ImproperlyConfigured as error:
        yield _error("settings", str(error), "manage.py check tells of all settings.")
        return
    yield _settings(conf)
    yield from _middleware()
    yield from _threads()
    yield from _ensemble(ensemble)
    reads = Reads(session, timeout)
    started = time.monotonic()
    try:
        reads.connect()
    except LockUnavailable as error:
        yield _error("session", str(error), "Look at the servers above, AUTH and TLS.")
        return
    took = time.monotonic() - started
    yield _ok("session", f"0x{session.id:x}, after {took:.2f} s")
    yield _session_timeout(session)
    yield _ticks(session, reads)
    may: str | None = None
    try:
        yield _acl(conf, reads)
        if access.has_roles(conf):
            may = access.permissions(reads)
            yield _role(session, may)
    except LockUnavailable as error:
        yield _error("ACL", str(error), "Look at the servers above.")
        return
    if may is None or "c" in may:  # other users take no locks, and try no nodes
        yield from _writes(session, reads)
        yield _clock(session, reads)
    yield _nodes(conf, reads)


def _ok(subject: str, message: str) -> Finding:
    return Finding(level="ok", subject=subject, message=message)


def _warning(subject: str, message: str, advice: str) -> Finding:
    return Finding(level="warning", subject=subject, message=message, advice=advice)


def _error(subject: str, message: str, advice: str) -> Finding:
    return Finding(level="error", subject=subject, message=message, advice=advice)


def _settings(conf: Configuration) -> Finding:
    message = f"{conf.namespace} on {conf.hosts}"
    if conf.max_node_bytes > LONGEST_MESSAGE:
        return _warning(
            "settings",
            f"{message}, with MAX_NODE_BYTES = {conf.max_node_bytes}, which is more than a server "
            "reads unless jute.maxbuffer was raised: the end of a process that holds so many locks "
            "would take the ensemble down (ZOOKEEPER-4306).",
            "Raise jute.maxbuffer on all servers well beyond it, or lower the setting.",
        )
    if hasattr(settings, "DISTLOCK"):
        return _ok("settings", message)
    return _warning(
        "settings",
        f"{message}, since there is no DISTLOCK in the settings.",
        f'Write DISTLOCK = {{"default": {{"HOSTS": "{conf.hosts}"}}}}, with your servers.',
    )


def _middleware() -> Iterator[Finding]:
    for message in check_middleware():
        yield _warning("middleware", message.msg, message.hint or "Remove all but the first.")


def _threads() -> Iterator[Finding]:
    for message in check_uwsgi():
        yield _error("threads", message.msg, message.hint or "Enable threads.")


# --- the servers ---------------------------------------------------------------------------------


def _ensemble(ensemble: list[Member]) -> Iterator[Finding]:
    yield from map(_server, ensemble)
    if len(ensemble) > 1 and any(member.role == "standalone" for member in ensemble):
        yield _error(
            "ensemble",
            "Several servers, and one of them stands alone: they do not share one tree, so a lock "
            "on one does not exclude anybody on another.",
            "Join them to one ensemble (server.1=… in zoo.cfg), or name one server in HOSTS.",
        )


def _server(member: Member) -> Finding:
    subject = f"server {member.address}"
    if not member.reachable:
        return _warning(
            subject,
            f"cannot be reached: {member.error}.",
            "Is it running, is the port right, does a firewall stand between? Locks work as long "
            "as a majority of the ensemble does. `manage.py distlock server` runs one for "
            "development.",
        )
    if not member.serving:
        return _warning(
            subject,
            "serves nobody: it is in touch with no majority of the ensemble.",
            "Start the other servers, or look at the network between them.",
        )
    if member.error:
        return _warning(
            subject,
            f"accepts connections and says nothing: {member.error}.",
            "It hangs, or something else listens there.",
        )
    if not member.role:
        return _ok(subject, "reachable; it does not tell its role (4lw.commands.whitelist)")
    clients = "" if member.connections is None else f", {member.connections} clients"
    milliseconds = member.seconds * 1000
    return _ok(subject, f"{member.role}, {member.version}{clients}, {milliseconds:.0f} ms")


# --- the session ---------------------------------------------------------------------------------


def _session_timeout(session: Session) -> Finding:
    asked, granted = session.conf.session_timeout, session.timeout
    message = f"{granted:g} s granted, {asked:g} s asked for"
    if abs(asked - granted) < 0.001:
        return _ok("timeout", message)
    bound, default = "maxSessionTimeout", MOST_TICKS
    if granted > asked:
        bound, default = "minSessionTimeout", LEAST_TICKS
    return _warning(
        "timeout",
        f"{message}: unless they are told otherwise, the servers allow from {LEAST_TICKS} to "
        f"{MOST_TICKS} ticks.",
        f"Change SESSION_TIMEOUT to {granted:g}, or {bound} of the servers ({default} times "
        "tickTime by default). Locks work with what is granted.",
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
        return _warning(
            "ticks",
            "The servers' tickTime is not known.",
            f"Look it up in zoo.cfg: the session timeout, {timeout:g} s, must be at least {TICKS} "
            "ticks, or STRICT must be set.",
        )
    message = f"the session timeout is {timeout / tick:.3g} ticks of {tick:g} s ({source})"
    if timeout >= TICKS * tick - 0.001:
        return _ok("ticks", message)
    if session.conf.strict:
        return _ok("ticks", f"{message}, with STRICT")
    trusted = timeout * 2 / 3
    return _warning(
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
    client = sessions.new_client(conf, lambda live, _: connected.set() if live else None)
    client.connect()
    try:
        return client.session_timeout if connected.wait(reads.left) else 0.0
    finally:
        client.say_goodbye(CLOSE_SECONDS)


def _acl(conf: Configuration, reads: Reads) -> Finding:
    if conf.acl != "open":
        return _effective_acl(reads)
    if not conf.auth and conf.tls is None:
        return _ok("ACL", "open: whoever reaches the servers may break every lock")
    return _warning(
        "ACL",
        "open, although there are credentials: whoever reaches the servers may break every lock.",
        'Set ACL to "creator".',
    )


def _effective_acl(reads: Reads) -> Finding:
    """Compare the ACLs of the namespace, and of some nodes under it, with the setting."""
    found = access.audit(reads, limit=_ACLS)
    if found.wrong:
        return _warning(
            "ACL",
            f"{len(found.wrong)} of {found.looked_at} nodes have another ACL than the setting's, "
            f"{clipped(found.wrong[0])} among them: others may touch these locks, or we may not.",
            "manage.py distlock set-acl --dry-run shows them all; without --dry-run it gives them "
            "the setting's.",
        )
    if found.unread:
        return _warning(
            "ACL",
            f"{len(found.unread)} nodes may not be read, {clipped(found.unread[0])} among them.",
            "Look who made them; manage.py distlock set-acl with the credentials of these changes "
            "their ACL.",
        )
    return _ok(
        "ACL",
        "only those whom ACL names may touch the locks; "
        f"{found.looked_at} nodes have the setting's ACL",
    )


def _role(session: Session, may: str | None) -> Finding:
    if may is None:
        return _warning(
            "role",
            f"{session.root} does not exist, so its ACL says nothing of this user.",
            "Let manage.py distlock set-acl create it.",
        )
    words = ", ".join(_PERMISSIONS[letter] for letter in may) or "do nothing"
    role = access.role(may)
    if role is not None:
        return _ok("role", f"{role}: this user may {words}")
    advice = "Compare AUTH with the users in ACL, and run manage.py distlock set-acl."
    message = f"none of the three: this user may {words}"
    return _warning("role", message, advice) if "r" in may else _error("role", message, advice)


def _clock(session: Session, reads: Reads) -> Finding:
    clock = server_clock(session, reads.left)
    if not clock.exact:
        return _warning(
            "clock",
            "The server's time is not known.",
            "It is told where a node can be made under the namespace; see above.",
        )
    skew = time.time() - clock.now()
    message = f"{abs(skew):.2f} s {'ahead of' if skew > 0 else 'behind'} the server's"
    if abs(skew) < SKEW:
        return _ok("clock", message)
    return _warning(
        "clock",
        message,
        "Locks do not go by it, but log lines and `since` do. Run NTP on both machines.",
    )


def _nodes(conf: Configuration, reads: Reads) -> Finding:
    """Look for a session whose end would take a long message (ZOOKEEPER-4306)."""
    try:
        seen = snapshot(conf.alias, depth=None, budget=reads.left)
    except LockUnavailable as error:
        return _warning("nodes", str(error), "Look at the permissions above.")
    sizes: Counter[int] = Counter()
    for lock in seen.locks:
        for one in lock.contenders:
            sizes[one.participant.session_id] += size_of(one.participant.path)
    session_id, most = max(sizes.items(), key=itemgetter(1), default=(0, 0))
    message = f"{most} bytes of paths in one session at most"
    if most <= conf.max_node_bytes / 2:
        return _ok("nodes", f"{message}{' of those that were read' if seen.cut else ''}")
    return _warning(
        "nodes",
        f"{message} (0x{session_id:x}). A process gets TooManyLocks at MAX_NODE_BYTES = "
        f"{conf.max_node_bytes}, and beyond jute.maxbuffer the end of such a session takes the "
        "ensemble down.",
        "Hold fewer locks at a time, or spread them over more processes.",
    )


# --- writing -------------------------------------------------------------------------------------


def _writes(session: Session, reads: Reads) -> Iterator[Finding]:
    """Write under the namespace as a lock does, and clean up."""

    def ask(method: Callable[..., None], *args: Any) -> Any:
        return session.call(method, *args, timeout=reads.left, key=session.root)

    parent = f"{session.root}/@doctor-{uuid4().hex}"
    step, permission = "", ""
    try:
        step, permission = "make a container node", "CREATE"
        if _make_namespace(session, ask):
            yield _ok("namespace", f"{session.root} is there")
        else:
            yield _ok("namespace", f"{session.root} was made: nobody has used it yet")
        ask(session.create_containers, parent)
        step = "make a lock's node"
        path, stat = ask(_contender, session, f"{parent}/{protected_prefix()}{LOCK}")
        step, permission = "list", "READ"
        ask(session.children, parent)
        step = "read a lock's node"
        ask(session.read, path)
        step, permission = "write to a lock's node", "WRITE"
        stat = ask(session.write, path, b"", stat.version)
        step, permission = "delete a lock's node", "DELETE"
        ask(session.remove, path, stat.version)
        step = "delete an empty parent"
        ask(session.remove, parent, -1)
    except (LockUnavailable, NoNode, NodeExists) as error:
        session.ask(session.remove, parent, -1)
        yield _error(
            "permissions",
            f"It is not possible to {step} under {session.root}: {error}",
            f"Give this client the permission {permission}, or let whoever made the nodes change "
            "their ACL. Container nodes need ZooKeeper 3.5.3 or newer.",
        )
    else:
        yield _ok("permissions", "container nodes, create, read, write and delete work")


def _contender(session: Session, prefix: str, done: Callable[..., None]) -> None:
    # A node made after the time-out ends with this session.
    session.create_contender(prefix, b"", done, lambda _: None)


def _make_namespace(session: Session, ask: Callable[..., Any]) -> bool:
    """Create the missing nodes of the namespace; return whether it existed."""
    try:
        ask(session.read, session.root)
    except NoNode:
        ask(session.create_containers, session.root)
        return False
    return True
