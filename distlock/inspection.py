"""The read-only view of the tree: who stands in a line."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from .client import NoNode
from .znodes import Participant, in_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .session import Session
    from .znodes import NodeName


def participants(
    session: Session,
    path: str,
    *,
    key: str,
    timeout: float,
    order: Callable[[Iterable[str]], list[NodeName]] = in_line,
) -> list[Participant]:
    """Return all who stand in the line under `path`, the holder first; empty where there is none.

    One list and one batch of reads; nodes that vanish in between are left out.

    :param timeout: seconds for all of it
    :param order: which of the names count, and in which order
    :raises LockUnavailable: ZooKeeper did not answer in time, or refused
    """
    deadline = time.monotonic() + timeout

    def answer(future: Future[Any]) -> Any:
        try:
            return session.answer(future, max(deadline - time.monotonic(), 0), key=key)
        except NoNode:
            return None

    names = answer(session.ask(session.children, path)) or ()
    reads = [
        (node_path, session.ask(session.read, node_path))
        for node_path in (f"{path}/{node.name}" for node in order(names))
    ]
    found = (participant(node_path, answer(read)) for node_path, read in reads)
    return [one for one in found if one is not None]


def participant(path: str, read: tuple[bytes, Any] | None) -> Participant | None:
    """Return who owns the node at `path`, which was read as (data, stat); None for no contender."""
    if read is None:
        return None
    data, stat = read
    return Participant.from_node(path, data, token=stat.czxid, session_id=stat.ephemeralOwner)
