"""The four-letter words, which ask a server how it is.

Source: ZooKeeper's ``server.command``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

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


def _wchp(server: EmbeddedZooKeeper) -> str:
    return "".join(
        path + "\n" + "".join(f"\t0x{session_id:x}\n" for session_id in ids)
        for path, ids in server.tree.watchers().items()
    )


WORDS: Final[dict[bytes, Callable[[EmbeddedZooKeeper], str]]] = {
    b"ruok": lambda _: "imok",
    b"srvr": _srvr,
    b"conf": _conf,
    b"mntr": _mntr,
    b"wchp": _wchp,
}
