"""The four-letter words, which ask a server how it is.

The answers have ZooKeeper's form, and those of its lines that a client may look for.

Source: ZooKeeper's ``server.command``, ``ServerCnxn.dumpConnectionInfo`` and ``WatchManager``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .connection import Connection
    from .server import EmbeddedZooKeeper

#: The version whose answers it gives.
_VERSION: Final = "3.8.0-distlock-embedded"


def _srvr(server: EmbeddedZooKeeper, clients: str = "") -> str:
    return (
        f"Zookeeper version: {_VERSION}\n"
        f"{clients}"
        f"Connections: {len(server.connections)}\n"
        f"Zxid: 0x{server.tree.zxid:x}\n"
        "Mode: standalone\n"
        f"Node count: {len(server.tree)}\n"
    )


def _stat(server: EmbeddedZooKeeper) -> str:
    return _srvr(server, "Clients:\n" + "".join(map(_brief, server.connections)) + "\n")


def _brief(connection: Connection, more: str = "") -> str:
    host, port = connection.peer
    received, sent = connection.received, connection.sent
    return f" /{host}:{port}[1](queued=0,recved={received},sent={sent}{more})\n"


def _cons(server: EmbeddedZooKeeper) -> str:
    lines = []
    for connection in server.connections:
        session = connection.session
        more = f",sid={session.id:#x},to={session.timeout * 1000:.0f}" if session else ""
        lines.append(_brief(connection, more))
    return "".join(lines) + "\n"


def _conf(server: EmbeddedZooKeeper) -> str:
    shortest, longest = server.session_timeouts
    return (
        f"clientPort={server.port}\n"
        f"minSessionTimeout={shortest * 1000:.0f}\n"
        f"maxSessionTimeout={longest * 1000:.0f}\n"
    )


def _mntr(server: EmbeddedZooKeeper) -> str:
    facts = {
        "version": _VERSION,
        "server_state": "standalone",
        "znode_count": len(server.tree),
        "watch_count": sum(map(len, server.tree.watchers().values())),
        "num_alive_connections": len(server.connections),
        "global_sessions": len(server.sessions),
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in facts.items())


def _dump(server: EmbeddedZooKeeper) -> str:
    sessions, owned = server.sessions.ids(), server.tree.ephemerals()
    return (
        f"SessionTracker dump:\nSession Sets ({len(sessions)})/({len(sessions)}):\n"
        + _lists({"each expires by itself": map(hex, sessions)}, ":")
        + f"ephemeral nodes dump:\nSessions with Ephemerals ({len(owned)}):\n"
        + _lists({hex(owner): paths for owner, paths in owned.items()}, ":")
    )


def _watches(server: EmbeddedZooKeeper) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return who watches each path, and the paths that each session watches."""
    by_path = {path: list(map(hex, ids)) for path, ids in server.tree.watchers().items()}
    by_session: dict[str, list[str]] = {}
    for path, ids in by_path.items():
        for session in ids:
            by_session.setdefault(session, []).append(path)
    return by_path, by_session


def _wchs(server: EmbeddedZooKeeper) -> str:
    by_path, by_session = _watches(server)
    total = sum(map(len, by_path.values()))
    return f"{len(by_session)} connections watching {len(by_path)} paths\nTotal watches:{total}\n"


def _lists(lists: Mapping[str, Iterable[str]], colon: str = "") -> str:
    return "".join(
        f"{name}{colon}\n" + "".join(f"\t{one}\n" for one in ones) for name, ones in lists.items()
    )


def _refused(word: str, _: Any) -> str:
    return f"{word} is not executed because it is not in the whitelist.\n"


WORDS: Final[dict[bytes, Callable[[EmbeddedZooKeeper], str]]] = {
    b"ruok": lambda _: "imok",
    b"isro": lambda _: "rw",
    b"envi": lambda _: f"Environment:\nzookeeper.version={_VERSION}\n",
    b"srvr": _srvr,
    b"stat": _stat,
    b"cons": _cons,
    b"conf": _conf,
    b"mntr": _mntr,
    b"dump": _dump,
    b"wchs": _wchs,
    b"wchp": lambda server: _lists(_watches(server)[0]) + "\n",
    b"wchc": lambda server: _lists(_watches(server)[1]) + "\n",
} | {
    word.encode(): partial(_refused, word)
    for word in ("crst", "dirs", "gtmk", "hash", "srst", "stmk")
}
