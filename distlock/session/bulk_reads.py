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
    from collections.abc import Callable, Iterable, Sequence

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
    """Reads on a session, until a deadline.

    :param budget: seconds for all of it
    """

    def __init__(self, session: Session, budget: float) -> None:
        self.session = session
        self.deadline = time.monotonic() + budget

    @property
    def left(self) -> float:
        """The seconds left."""
        return max(self.deadline - time.monotonic(), 0)

    def connect(self) -> None:
        """Wait for a connection, for ``CONNECT_TIMEOUT`` at most.

        :raises LockUnavailable: there was none in time
        """
        connected = threading.Event()
        self.session.when_connected(connected.set)
        if not connected.wait(min(self.left, self.session.conf.connect_timeout)):
            raise self.session.unavailable(self.session.root)

    def refused(self) -> LockUnavailable:
        """Return the error for a caller that may not read the root of the namespace."""
        return self.session.unavailable(self.session.root, NoAuth())

    def children(self, paths: Iterable[str]) -> list[Outcome]:
        """List the names under each path.

        :raises LockUnavailable: the connection was lost
        """
        return self._all(self.session.children, list(paths), list)

    def nodes(self, paths: Iterable[str]) -> list[Outcome]:
        """Read (data, stat) of each path. Data beyond 10,000 bytes is cut off.

        :raises LockUnavailable: the connection was lost
        """
        return self._all(self.session.read, list(paths), _cut)

    def acls(self, paths: Iterable[str]) -> list[Outcome]:
        """Read the ACL of each path.

        :raises LockUnavailable: the connection was lost
        """
        return self._all(self.session.read_acl, list(paths), _acl)

    def _all(
        self, method: Callable[..., None], paths: Sequence[str], kept: Callable[[Any], Any]
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, len(paths), BATCH):
            batch = _Batch(method, paths[start : start + BATCH], kept)
            if self.left:
                batch.send()
                batch.done.wait(self.left)
            outcomes += map(self._checked, batch.outcomes)
        return outcomes

    def _checked(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, BaseException):
            raise self.session.unavailable(self.session.root, outcome)
        return outcome


class _Batch:
    """Requests that are sent together, and their outcomes in the same order."""

    def __init__(
        self, method: Callable[..., None], paths: Sequence[str], kept: Callable[[Any], Any]
    ) -> None:
        self._method = method
        self._paths = paths
        self._kept = kept
        self._missing = set(range(len(paths)))
        self.outcomes: list[Outcome] = [UNREAD] * len(paths)
        self.done = threading.Event()

    def send(self) -> None:
        for index, path in enumerate(self._paths):
            self._method(path, partial(self._answered, index))

    def _answered(self, index: int, value: Any, error: BaseException | None) -> None:
        # In this thread when there is no connection, and on the connection thread otherwise.
        self.outcomes[index] = self._kept(value) if error is None else _why(error)
        self._missing.discard(index)
        if not self._missing:
            self.done.set()


def _acl(value: tuple[list[Any], Any]) -> list[Any]:
    return value[0]


def _cut(value: tuple[bytes, Any]) -> tuple[bytes, Any]:
    data, stat = value
    return data[:KEPT], stat


def _why(error: BaseException) -> Outcome:
    match error:
        case NoNode():
            return GONE
        case NoAuth():
            return FORBIDDEN
        case _:
            return error
