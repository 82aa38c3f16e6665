"""Tells the session reaper how to end a session in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .address import address
from .requests import call, good_bye, packed, session_arguments
from .tls import tls_of

if TYPE_CHECKING:
    from distlock.conf import Configuration

#: The seconds that a Sentinel may take to name the primary.
_SENTINEL_SECONDS = 1.0


def report(conf: Configuration, session_id: int, password: bytes) -> dict[str, Any]:
    """Return the facts that `session_reaper.end_session` needs to end a session."""
    found = address(conf.hosts)
    options = found.options
    names = ("username", "password")
    credentials = [options[name].encode() for name in names if options.get(name)]
    commands = [(b"AUTH", *credentials)] if credentials else []
    if options.get("db"):
        commands.append((b"SELECT", b"%d" % options["db"]))
    commands.append(call(session_arguments(conf, session_id, password), good_bye()))
    return {
        "alias": conf.alias,
        "session": session_id,
        "password": password.hex(),
        "servers": [found.server(_SENTINEL_SECONDS)],
        "tls": tls_of(options),
        "commands": [packed(*command).decode() for command in commands],
    }
