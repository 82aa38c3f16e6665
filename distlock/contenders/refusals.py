"""Makes the errors of contenders that the wait queue refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.exceptions import IncompatiblePeer, LockLost, LockUnavailable
from distlock.keys import znodes
from distlock.queue.events import Refuse, Why

if TYPE_CHECKING:
    from distlock.session.session import Session


def refusal(refuse: Refuse, session: Session, path: str, key: str) -> Exception:
    """Return the error for a contender of the line under `path`."""
    if refuse.why is Why.INCOMPATIBLE:
        return _incompatible(f"{path}/{refuse.about}", str(refuse.about), key)
    if refuse.why is Why.NOT_REMOVABLE:
        return LockUnavailable(
            f"{path} has come to the end of its sequence numbers, and has data or an ACL "
            "of somebody's own, so distlock does not remove it. Remove it by hand while nobody "
            f"uses {key!r}, and make it again.",
            key=key,
            retry_after=session.conf.retry_after,
            using=session.conf.alias,
        )
    if refuse.why is Why.WRITER_LOST:
        return LockLost(f"The write lock {key!r} was lost before it became a read lock.")
    return session.unavailable(key, refuse.about if isinstance(refuse.about, Exception) else None)


def _incompatible(path: str, name: str, key: str) -> IncompatiblePeer:
    node = znodes.parse(name)
    recipe = znodes.incompatible_recipe(name)
    if not recipe:
        mutex = node is not None and node.kind == znodes.LOCK
        recipe = f"Curator's {'InterProcessMutex' if mutex else 'InterProcessReadWriteLock'}"
    return IncompatiblePeer(
        f"{path} is a node of {recipe}, which does not wait for a node such as ours: both would "
        f"believe that they hold {key!r}. Use the same recipe on both sides "
        "(docs/reference/curator.md has a table of all pairs), or another path."
    )


def worn(path: str, key: str) -> IncompatiblePeer:
    """Return the error for a line that has to begin anew, and whose first node stays."""
    return IncompatiblePeer(
        f"{path} is near the end of its sequence numbers, so the line has to begin anew, "
        "and a client that does not know that (Curator, or an older distlock) stays in it. Stop "
        f"the clients of {key!r} until nobody is in the line."
    )
