"""Makes the events of the wait queue from the server's answers."""

from __future__ import annotations

from typing import Any

from distlock.queue import events as e


def listed(names: Any, error: e.Error, *, sync: bool = False) -> e.Listed:
    """Return the event of a listed line."""
    return e.Listed(names or (), error, sync)


def line_read(value: Any, error: e.Error) -> e.LineRead:
    """Return the event of a line whose own node was read; the answer is (data, stat)."""
    if error:
        return e.LineRead(error=error)
    data, stat = value
    plain = not (data or stat.version or stat.aversion)
    return e.LineRead(stat.czxid, stat.version, plain)


def node_read(name: str, value: Any, error: e.Error) -> e.NodeRead:
    """Return the event of a node that was read."""
    if error:
        return e.NodeRead(name, error=error)
    data, stat = value
    return e.NodeRead(name, node(name, stat), data)


def watched(name: str, value: Any, error: e.Error) -> e.Watched:
    """Return the event of a node that was read and is watched."""
    if error:
        return e.Watched(name, error=error)
    data, stat = value
    return e.Watched(name, data, stat.version)


def node(path: str, stat: Any) -> e.Node:
    """Return a contender's node."""
    name = path.rpartition("/")[2]
    return e.Node(name, stat.czxid, stat.ephemeralOwner, int(name[-10:]))
