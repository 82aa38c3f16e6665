"""Reads many nodes on one session, a few hundred at a time, against one deadline.

It never sends more at once: the session's heartbeat waits behind earlier requests, and somebody may
have put a megabyte into each node.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from distlock.engine.errors import NoAuth, NoNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from distlock.exceptions import LockUnavailable

    from .session import Session

#: The number of requests under way at a time.
BATCH: Final = 250
#: The bytes kept of a node's data. No node of ours has more.
KEPT: Final = 10_000


class _Unread:
    """Takes the place of a value that could not be read, and names the reason."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __repr__(self) -> str:
        return f"<{self._why}>"


#: The node does not exist, or no longer.
GONE: Final = _Unread("gone")
#: The node's ACL does not let us read it.
FORBIDDEN: Final = _Unread("forbidden")
#: The time was up.
UNREAD: Final = _Unread("not read in time")

#: Names of children, or (data, stat), or one of the above.
Outcome: TypeAlias = Any


class Reads:
    """Reads on a session for `budget` seconds; LockUnavailable if the connection is lost."""

    def __init__(self, session: Session, budget: float) -> None:
        self.session = session
        self.deadline = time.monotonic() + budget

    @property
    def left(self) -> float:
        """The seconds left."""
        return max(self.deadline - time.monotonic(), 0)

    def connect(self) -> None:
        """Wait for a connection, for ``CONNECT_TIMEOUT`` at most."""
        connected = threading.Event()
        self.session.when_connected(connected.set)
        if not connected.wait(min(self.left, self.session.conf.connect_timeout)):
            raise self.session.unavailable(self.session.root)

    def refused(self) -> LockUnavailable:
        """Return the error for a caller that may not read the root of the namespace."""
        return self.session.unavailable(self.session.root, NoAuth())

    def children(self, paths: Iterable[str]) -> list[Outcome]:
        """List the names under each path."""
        return self._all(self.session.children, list(paths), list)

    def nodes(self, paths: Iterable[str]) -> list[Outcome]:
        """Read (data, stat) of each path. Data beyond 10,000 bytes is cut off."""
        return self._all(self.session.read, list(paths), lambda node: (node[0][:KEPT], node[1]))

    def acls(self, paths: Iterable[str]) -> list[Outcome]:
        """Read the ACL of each path."""
        return self._all(self.session.read_acl, list(paths), lambda node: node[0])

    def _all(
        self, method: Callable[..., None], paths: Sequence[str], kept: Callable[[Any], Any]
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, len(paths), BATCH):
            outcomes += self._batch(method, paths[start : start + BATCH], kept)
        return outcomes

    def _batch(
        self, method: Callable[..., None], paths: Sequence[str], kept: Callable[[Any], Any]
    ) -> Iterator[Outcome]:
        outcomes: list[Outcome] = [UNREAD] * len(paths)
        missing = set(range(len(paths)))
        done = threading.Event()

        def answered(index: int, value: Any, error: BaseException | None) -> None:
            # In this thread when there is no connection, and on the connection thread otherwise.
            outcomes[index] = kept(value) if error is None else _why(error)
            missing.discard(index)
            if not missing:
                done.set()

        if self.left:
            for index, path in enumerate(paths):
                method(path, partial(answered, index))
            done.wait(self.left)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise self.session.unavailable(self.session.root, outcome)
            yield outcome


def _why(error: BaseException) -> Outcome:
    if isinstance(error, NoNode):
        return GONE
    return FORBIDDEN if isinstance(error, NoAuth) else error
