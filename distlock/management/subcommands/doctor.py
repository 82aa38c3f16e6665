"""`manage.py distlock doctor`: finds what keeps locks from working on this machine."""

from __future__ import annotations

import shutil
import textwrap
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.checks import check_middleware, check_uwsgi
from distlock.conf import configuration
from distlock.engine.errors import NodeExists, NoNode
from distlock.engine.hosts import engine_of
from distlock.engine.protocol import Finding, failure, ok, warning
from distlock.exceptions import LockUnavailable
from distlock.keys.limits import LEAST_TICKS, MOST_TICKS
from distlock.keys.znodes import LOCK, protected_prefix
from distlock.management.output import NOTHING, UNAVAILABLE, add_options, as_json, exit_statuses
from distlock.session.bulk_reads import Reads
from distlock.session.programs import asking, in_background
from distlock.session.registry import session_for
from distlock.session.server_time import server_clock
from distlock.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.conf import Configuration
    from distlock.session.session import Session

HELP = "Look at settings, servers, session, clock and permissions, and say what to do."
EXAMPLES = {
    "doctor": "each line is ok, a warning or an error",
    "doctor --using inventory": "another alias in DISTLOCK",
    "doctor -o json": "for a script",
}

_MARGIN = " " * 9


def add_arguments(parser: CommandParser) -> None:
    add_options(parser, "json")
    parser.epilog = (
        "Exit status: 0 when locks work, with warnings or without; 1 when something keeps them "
        "from working, such as no server that can be reached; 69 when the servers grant no session."
    )


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    found: list[Finding] = []
    with exit_statuses():
        for finding in diagnose(options["using"], timeout=options["budget"]):
            found.append(finding)
            if not options["output"]:
                command.stdout.write(_as_text(finding, command))
                command.stdout.flush()
    if options["output"]:
        command.stdout.write(as_json([finding._asdict() for finding in found]))
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
        engine = engine_of(conf.hosts)
        reachable, servers = engine.servers(conf, min(timeout, 2.0))
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
        yield from engine.looks(conf, session.timeout, reads.left)
        yield _writes(session, reads)
        yield _clock(session, reads)
    except LockUnavailable as error:
        yield failure("session", str(error), "Look at the servers above, credentials and TLS.")


def _settings(conf: Configuration) -> Finding:
    message = f"{conf.namespace} on {engine_of(conf.hosts).shown(conf)}"
    if hasattr(settings, "DISTLOCK"):
        return ok("settings", message)
    return warning(
        "settings",
        f"{message}, since there is no DISTLOCK in the settings.",
        f'Write DISTLOCK = {{"default": {{"HOSTS": "{conf.hosts}"}}}}, with your servers.',
    )


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


def _writes(session: Session, reads: Reads) -> Finding:
    """Write under the namespace as a lock does, and clean up."""

    def ask(method: Callable[..., None], *args: Any) -> Any:
        return session.call(method, *args, timeout=reads.left, key=session.root)

    def contender(prefix: str, done: Callable[..., None]) -> None:
        # A node made after the time-out ends with this session.
        session.create_ephemeral(prefix, b"", done, lambda _: None, sequential=True)

    parent = f"{session.root}/@doctor-{uuid4().hex}"
    step, right = "make a container node", "create"
    try:
        ask(session.create_containers, parent)
        step = "make a lock's node"
        path, stat = ask(contender, f"{parent}/{protected_prefix()}{LOCK}")
        step, right = "list", "read"
        ask(session.children, parent)
        step = "read a lock's node"
        ask(session.read, path)
        step, right = "write to a lock's node", "write"
        stat = ask(session.write, path, b"", stat.version)
        step, right = "delete a lock's node", "delete"
        ask(session.remove, path, stat.version)
        step = "delete an empty parent"
        with suppress(NoNode):  # the server removes it, too
            ask(session.remove, parent, -1)
    except (LockUnavailable, NoNode, NodeExists) as error:
        in_background(session, asking(partial(session.remove, parent, -1)))
        advice = engine_of(session.conf.hosts).advice(session.conf, right)
        message = f"It is not possible to {step} under {session.root}: {error}"
        return failure("permissions", message, advice)
    return ok("permissions", "container nodes, create, read, write and delete work")
