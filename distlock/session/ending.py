"""Ending a session by its id and password, which ends its nodes, too.

It takes some 10 ms, where the server by itself waits for the session timeout. The `session_reaper`
does it for dead processes, and has the code: it may import nothing of distlock.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.views.decorators.debug import sensitive_variables

from distlock.engine import session_reaper

if TYPE_CHECKING:
    from distlock.conf import Configuration

#: ZooKeeper's, where ``HOSTS`` names none.
_PORT = 2181

_sasl = find_spec("puresasl")
#: Where pure-sasl is, for a program that does not know this environment's packages. Not looked for
#: later: on the connection thread, an import lock might be taken in a child forked meanwhile.
_LIBRARIES = str(Path(_sasl.origin).parents[1]) if _sasl and _sasl.origin else ""


@sensitive_variables()  # error mails show variables
def report(conf: Configuration, session_id: int, password: bytes) -> dict[str, Any]:
    """Return all that it takes to end a session, as `session_reaper.end_session` expects it."""
    servers = [urlsplit(f"//{server}") for server in conf.hosts.partition("/")[0].split(",")]
    return {
        "alias": conf.alias,
        "session": session_id,
        "password": password.hex(),
        "timeout": conf.session_timeout,
        "servers": [(server.hostname, server.port or _PORT) for server in servers],
        "tls": conf.tls and dict(conf.tls),
        "auth": conf.auth,
        "libraries": _LIBRARIES,
    }


def end_session(conf: Configuration, session_id: int, password: bytes, timeout: float) -> bool:
    """End a session on the server, which frees its locks. Only for a process that is dead.

    :param timeout: seconds for which it is tried while ZooKeeper is away
    :return: whether the session was alive
    :raises OSError: no server could be asked, or none accepted the credentials
    """
    return session_reaper.end_session(report(conf, session_id, password), timeout)
