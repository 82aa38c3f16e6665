"""Ends a session by its id and password, and its nodes with it.

This takes some 10 ms; the server by itself waits for the session timeout. The `session_reaper` does
it for dead processes, and has the code, since it imports next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.views.decorators.debug import sensitive_variables

from distlock.conf.rules import REDIS
from distlock.engine import session_reaper
from distlock.engine.zookeeper.ensemble import servers

if TYPE_CHECKING:
    from distlock.conf import Configuration

#: ZooKeeper's port, if ``HOSTS`` names none.
_PORT = 2181


@sensitive_variables()  # error mails show variables
def report(conf: Configuration, session_id: int, password: bytes) -> dict[str, Any]:
    """Return the facts that `session_reaper.end_session` needs to end a session."""
    if conf.engine == REDIS:
        from distlock.engine.redis import ending  # noqa: PLC0415 - of the extra [redis]

        return ending.report(conf, session_id, password)
    addresses = [urlsplit(f"//{server}") for server in servers(conf)]
    return {
        "alias": conf.alias,
        "session": session_id,
        "password": password.hex(),
        "timeout": conf.session_timeout,
        "servers": [(server.hostname, server.port or _PORT) for server in addresses],
        "tls": conf.tls and dict(conf.tls),
        # No SASL: by default, a server lets any client that has the password end a session.
        "auth": [pair for pair in conf.auth if pair[0] != "sasl"],
    }


def end_session(conf: Configuration, session_id: int, password: bytes, timeout: float) -> bool:
    """End a dead process's session on the server, which frees its locks.

    :param timeout: seconds to keep trying while the servers are away
    :return: whether the session was alive
    :raises OSError: no server could be asked, or none accepted the credentials
    """
    return session_reaper.end_session(report(conf, session_id, password), timeout)
