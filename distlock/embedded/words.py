"""The four-letter words, which ask a server how it is.

It knows those that clients and our tests ask. The answers have ZooKeeper's form, and those of its
lines that somebody looks for.

Source: ZooKeeper's ``server.command``, ``ServerCnxn.dumpConnectionInfo`` and ``WatchManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .connection import Connection
    from .server import EmbeddedZooKeeper

#: The version whose answers it gives.
_VERSION: Final = "3.8.0-distlock-embedded"


def _srvr(server: EmbeddedZooKeeper) -> str:
    return (
        f"Zookeeper version: {_VERSION}\n"
        f"Connections: {len(server.connections)}\n"
        f"Zxid: 0x{server.tree.zxid:x}\n"
        "Mode: standalone\n"
        f"Node count: {len(server.tree)}\n"
    )


def _cons(server: EmbeddedZooKeeper) -> str:
    return "".join(map(_facts, server.connections)) + "\n"


def _facts(connection: Connection) -> str:
    (host, port), session = connection.peer, connection.session
    more = f",sid={session.id:#x},to={session.timeout * 1000:.0f}" if session else ""
    counts = f"recved={connection.received},sent={connection.sent}"
    return f" /{host}:{port}[1](queued=0,{counts}{more})\n"


def _conf(server: EmbeddedZooKeeper) -> str:
    shortest, longest = server.session_timeouts
    return (
        f"clientPort={server.port}\n"
        f"minSessionTimeout={shortest * 1000:.0f}\n"
        f"maxSessionTimeout={longest * 1000:.0f}\n"
    )


def _dump(server: EmbeddedZooKeeper) -> str:
    sessions, owned = server.sessions.ids(), server.tree.ephemerals()
    return (
        f"SessionTracker dump:\nSession Sets ({len(sessions)})/({len(sessions)}):\n"
        + _lists({"each expires by itself": map(hex, sessions)}, ":")
        + f"ephemeral nodes dump:\nSessions with Ephemerals ({len(owned)}):\n"
        + _lists({hex(owner): paths for owner, paths in owned.items()}, ":")
    )


def _wchp(server: EmbeddedZooKeeper) -> str:
    watchers = server.tree.watchers()
    return _lists({path: map(hex, ids) for path, ids in watchers.items()}) + "\n"


def _lists(lists: Mapping[str, Iterable[str]], colon: str = "") -> str:
    return "".join(
        f"{name}{colon}\n" + "".join(f"\t{one}\n" for one in ones) for name, ones in lists.items()
    )


WORDS: Final[dict[bytes, Callable[[EmbeddedZooKeeper], str]]] = {
    b"ruok": lambda _: "imok",
    b"envi": lambda _: f"Environment:\nzookeeper.version={_VERSION}\n",
    b"srvr": _srvr,
    b"cons": _cons,
    b"conf": _conf,
    b"dump": _dump,
    b"wchp": _wchp,
}
