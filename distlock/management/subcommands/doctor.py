"""`manage.py distlock doctor`: finds what keeps locks from working on this machine."""

from __future__ import annotations

import shutil
import textwrap
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.checks import check_middleware, check_uwsgi
from distlock.conf import configuration
from distlock.conf.redis_urls import is_sentinel
from distlock.conf.rules import ABOUT_EMBEDDED, REDIS
from distlock.engine.deadline import TICKS
from distlock.engine.errors import NodeExists, NoNode
from distlock.engine.zookeeper.ensemble import members
from distlock.engine.zookeeper.ensemble import tick as ensemble_tick
from distlock.exceptions import LockUnavailable
from distlock.keys.limits import LEAST_TICKS, LONGEST_MESSAGE, MOST_TICKS
from distlock.keys.znodes import LOCK, protected_prefix
from distlock.management.output import NOTHING, UNAVAILABLE, add_options, exit_statuses, write_json
from distlock.session.bulk_reads import FORBIDDEN, GONE, UNREAD, Reads
from distlock.session.engines import client_of, shown
from distlock.session.programs import asking, in_background
from distlock.session.registry import session_for
from distlock.session.server_time import server_clock
from distlock.session.session import CLOSE_SECONDS, Session
from distlock.text import clipped, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.conf import Configuration
    from distlock.engine.protocol import Member

HELP = "Look at settings, servers, session, clock and permissions, and say what to do."

_MARGIN = " " * 9

#: The number of nodes whose ACLs are checked.
_ACLS: Final = 1000


class Finding(NamedTuple):
    """The result of one check: ``warning`` can be better, with ``error`` locks do not work."""

    level: Literal["ok", "warning", "error"]
    subject: str
    message: str
    advice: str = ""


ok: Final = partial(Finding, "ok")
warning: Final = partial(Finding, "warning")
failure: Final = partial(Finding, "error")


def add_arguments(parser: CommandParser) -> None:
    add_options(parser)
    parser.epilog = (
        "Exit status: 0 when locks work, with warnings or without; 1 when something keeps them "
        "from working, such as no server that can be reached; 69 when the servers grant no session."
    )


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    found: list[Finding] = []
    with exit_statuses():
        for finding in diagnose(options["using"], timeout=options["budget"]):
            found.append(finding)
            if not options["json"]:
                command.stdout.write(_as_text(finding, command))
                command.stdout.flush()
    if options["json"]:
        write_json(command, [finding._asdict() for finding in found])
    errors = [finding for finding in found if finding.level == "error"]
    if errors:
        status = UNAVAILABLE if any(one.subject == "session" for one in errors) else NOTHING
        subjects = ", ".join(finding.subject for finding in errors)
        raise CommandError(f"Locks do not work here: {subjects}.", returncode=status)


def _as_text(finding: Finding, command: BaseCommand) -> str:
    width = max(shutil.get_terminal_size().columns, 60)
    line = printable(f"{finding.level:9}{finding.subject}: {finding.message}")
    lines = textwrap.wrap(line, width, subsequent_indent=_MARGIN)
    if finding.advice:
        advice = printable(f"{_MARGIN}{finding.advice}")
        lines += textwrap.wrap(advice, width, subsequent_indent=_MARGIN)
    styles = {"ok": command.style.SUCCESS, "warning": command.style.WARNING}
    return styles.get(finding.level, command.style.ERROR)("\n".join(lines))


def diagnose(using: str = "default", *, timeout: float = 10.0) -> Iterator[Finding]:
    """Check everything that locks need, and yield findings, until something is missing.

    It creates and removes nodes under the namespace, beside the locks.

    :param using: the alias in ``DISTLOCK``
    :param timeout: seconds to wait for a session, and for all questions in it
    """
    try:
        conf = configuration(using)
        redis = conf.engine == REDIS
        reachable, servers = (_redis if redis else _ensemble)(conf, min(timeout, 2.0))
    except ImproperlyConfigured as error:
        yield failure("settings", str(error), "manage.py check tells of all settings.")
        return
    yield _settings(conf)
    for message in check_middleware():
        yield warning("middleware", message.msg, str(message.hint))
    for message in check_uwsgi():
        yield failure("threads", message.msg, str(message.hint))
    yield from servers
    if not reachable:
        return
    session = session_for(using)
    reads = Reads(session, timeout)
    started = time.monotonic()
    try:
        reads.connect()
        took = time.monotonic() - started
        yield ok("session", f"granted after {took:.2f} s by {session.server}")
        yield _session_timeout(session)
        if not redis:
            yield _ticks(session, reads)
            yield _acl(conf, reads)
            if conf.acl != "open" and not conf.embedded:
                yield _stranger(reads)
        yield _writes(session, reads)
        yield _clock(session, reads)
    except LockUnavailable as error:
        yield failure("session", str(error), "Look at the servers above, credentials and TLS.")


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
        message,
        f"Change SESSION_TIMEOUT to {granted:g}, or {bound} of the servers, which is "
        f"{LEAST_TICKS if granted > asked else MOST_TICKS} ticks unless they are told otherwise. "
        "Locks work with what is granted.",
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
    if timeout >= (LEAST_TICKS if session.conf.strict else TICKS) * tick - 0.001:
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
    conf = replace(session.conf, session_timeout=0.5)  # less than any two ticks
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
    if abs(skew) < 1.0:
        return ok("clock", message)
    advice = "Locks do not go by it, but log lines and `since` do. Run NTP on both machines."
    return warning("clock", message, advice)


# --- who may touch the locks, and whether this user may -----------------------------------------


def _acl(conf: Configuration, reads: Reads) -> Finding:
    if conf.acl != "open":
        return _effective_acl(reads)
    message = "open: whoever reaches the servers may break every lock"
    if conf.auth or conf.tls is not None:
        return warning("ACL", f"{message}, although there are credentials", 'Set ACL to "creator".')
    return ok("ACL", message)


def _effective_acl(reads: Reads) -> Finding:
    """Look for nodes that everyone may change, or that we may not read.

    A node may be deleted by who has DELETE on its parent, so parents count at every level. Source:
    ``PrepRequestProcessor.pRequest2Txn``.
    """
    paths = level = [reads.session.root]
    while level and len(paths) < _ACLS:
        below = zip(level, reads.children(level), strict=True)
        level = [
            f"{path}/{name}" for path, names in below if isinstance(names, list) for name in names
        ][: _ACLS - len(paths)]
        paths = paths + level
    wrong = [
        path
        for path, acl in zip(paths, reads.acls(paths), strict=True)
        if acl is FORBIDDEN
        or (isinstance(acl, list) and any(one.id.scheme == "world" for one in acl))
    ]
    if not wrong:
        return ok("ACL", f"none of {len(paths)} nodes is open to everyone")
    return warning(
        "ACL",
        f"{len(wrong)} of {len(paths)} nodes are open to everyone, or closed to this user, "
        f"{clipped(wrong[0])} among them: nodes keep the ACL that they were created with.",
        "Set their ACL: docs/how-to/least-privilege.md has a recipe.",
    )


def _stranger(reads: Reads) -> Finding:
    """Try a read without credentials.

    A client that may send requests may end any session: its password follows from its id, and ids
    are handed out in order. No ACL is asked. Source: ``ZooKeeperServer.generatePasswd`` and
    ``reopenSession``, ``SessionTrackerImpl.createSession``; 3.5 to 3.9.
    """
    conf = reads.session.conf
    identity = ("cert", "key", "key_password")
    tls = conf.tls and {name: conf.tls[name] for name in conf.tls if name not in identity}
    stranger = Session(replace(conf, auth=(), tls=tls))
    try:
        limit = min(reads.left, conf.connect_timeout)
        (root,) = Reads(stranger, limit).nodes([stranger.root])
    except LockUnavailable:
        root = UNREAD
    finally:
        stranger.close()
    if root is UNREAD:
        return ok("strangers", "a client without credentials gets no answer")
    reads_too = "" if root in (GONE, FORBIDDEN) else ", and reads"
    return warning(
        "strangers",
        f"a client without credentials is served{reads_too}. Any such "
        "client can end the sessions of others, and free their locks, whatever ACL says.",
        "Close the network, require client certificates (ssl.clientAuth=need, and no clientPort), "
        "or set enforce.auth.enabled and enforce.auth.schemes (ZooKeeper 3.7 and newer).",
    )


def _writes(session: Session, reads: Reads) -> Finding:
    """Write under the namespace as a lock does, and clean up."""

    def ask(method: Callable[..., None], *args: Any) -> Any:
        return session.call(method, *args, timeout=reads.left, key=session.root)

    def contender(prefix: str, done: Callable[..., None]) -> None:
        # A node made after the time-out ends with this session.
        session.create_contender(prefix, b"", done, lambda _: None)

    parent = f"{session.root}/@doctor-{uuid4().hex}"
    step, permission = "make a container node", "CREATE"
    try:
        ask(session.create_containers, parent)
        step = "make a lock's node"
        path, stat = ask(contender, f"{parent}/{protected_prefix()}{LOCK}")
        step, permission = "list", "READ"
        ask(session.children, parent)
        step = "read a lock's node"
        ask(session.read, path)
        step, permission = "write to a lock's node", "WRITE"
        stat = ask(session.write, path, b"", stat.version)
        step, permission = "delete a lock's node", "DELETE"
        ask(session.remove, path, stat.version)
        step = "delete an empty parent"
        with suppress(NoNode):  # the server removes it, too
            ask(session.remove, parent, -1)
    except (LockUnavailable, NoNode, NodeExists) as error:
        in_background(session, asking(partial(session.remove, parent, -1)))
        if session.conf.engine == REDIS:
            advice = "The message says what the server, or the user in HOSTS, does not do."
        else:
            roles = isinstance(session.conf.acl, Mapping)
            advice = (
                f"{'Of the roles in ACL, only app may acquire locks. ' if roles else ''}Give this "
                f"client the permission {permission}, or let whoever made the nodes change their "
                "ACL. distlock needs ZooKeeper 3.5.3 or newer."
            )
        message = f"It is not possible to {step} under {session.root}: {error}"
        return failure("permissions", message, advice)
    return ok("permissions", "container nodes, create, read, write and delete work")


# --- Redis: what a restart, a full memory or a failover does to the locks in it ------------------


def _redis(conf: Configuration, timeout: float) -> tuple[bool, list[Finding]]:
    """Return whether the server serves us, and the findings on it.

    :param timeout: seconds for each step
    """
    from distlock.engine.redis.server import facts  # noqa: PLC0415 - of the extra [redis]

    facts_of = facts(conf, timeout)
    member, subject = facts_of.member, f"server {facts_of.member.address}"
    if member.error:
        advice = "Is it running, are HOSTS right, does a firewall stand between?"
        return False, [failure(subject, f"does not serve: {member.error}.", advice)]
    message = f"a round trip takes {member.seconds * 1000:.2f} ms"
    if not member.version:
        return True, [ok(subject, f"{message}; this user may not see more (INFO)")]
    message = f"{member.role}, {member.version}, {message}"
    advice = "Name the primary in HOSTS, or the Sentinels: a replica has no locks."
    replica = member.role == "replica"
    found = [failure(subject, message, advice) if replica else ok(subject, message)]

    limit, policy = facts_of.maxmemory, facts_of.policy
    if policy is not None and limit is not None:
        message = f"maxmemory {limit or 'no limit'}, maxmemory-policy {policy}"
        if policy == "noeviction" or policy.startswith("volatile-"):  # keys of locks do not expire
            found.append(ok("memory", message))
        else:
            message += ": the server may evict a lock that is held, and give it to somebody else"
            advice = (
                "Set maxmemory-policy noeviction, or use another server for locks than for a cache."
            )
            found.append(
                failure("memory", f"{message}.", advice)
                if limit
                else warning("memory", f"{message} once it has a limit.", advice)
            )

    if facts_of.appendonly:
        found.append(ok("persistence", "appendonly yes"))
    elif facts_of.appendonly is not None:
        message = (
            "appendonly no: a restart forgets locks, so their holders lose them, and nobody gets "
            "a lock for one session timeout."
        )
        found.append(warning("persistence", message, "Set appendonly yes."))

    connected = facts_of.replicas
    message = f"{connected} connected, REPLICAS is {conf.replicas}"
    if not conf.replicas and (connected or is_sentinel(conf.hosts)):
        message += (
            ": if one of them takes over, it may not have a lock, a lease may have two owners for "
            "the rest of its time, and a primary that is cut off may go on confirming heartbeats."
        )
        advice = (
            "Set REPLICAS to the number of replicas that must have a lock before it counts, or "
            "make none of them the primary."
        )
        found.append(warning("replicas", message, advice))
    elif connected is not None and connected < conf.replicas:
        advice = "Start the missing replicas, or lower REPLICAS."
        found.append(failure("replicas", f"{message}: no lock is granted.", advice))
    elif connected is not None:
        found.append(ok("replicas", message))
    return True, found
