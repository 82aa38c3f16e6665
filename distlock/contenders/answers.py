"""Makes the events of the wait queue from the server's answers."""

from __future__ import annotations

from typing import Any

from distlock.queue import events as e


def not_created(_: Any, error: e.Error) -> e.Created:
    """Return the event of a node that was not created."""
    return e.Created(None, error)


def listed(names: Any, error: e.Error, *, sync: bool = False) -> e.Listed:
    """Return the event of a listed line."""
    return e.Listed(names or (), error, sync)


def line_made(_: Any, error: e.Error) -> e.LineMade:
    """Return the event of a line whose own node was created."""
    return e.LineMade(error)


def line_read(value: Any, error: e.Error) -> e.LineRead:
    """Return the event of a line whose own node was read; the answer is (data, stat)."""
    if error:
        return e.LineRead(error=error)
    data, stat = value
    plain = not (data or stat.version or stat.aversion)
    return e.LineRead(stat.czxid, stat.version, plain)


def line_removed(_: Any, error: e.Error) -> e.LineRemoved:
    """Return the event of a line whose own node was deleted."""
    return e.LineRemoved(error)


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
