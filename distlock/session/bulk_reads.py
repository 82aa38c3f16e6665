"""Reads many nodes on one session against one deadline, and tells why one could not be read."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from distlock.engine.errors import NoAuth, NoNode, TimeUp

from .programs import asking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distlock.engine.reply import Done

    from .programs import Program
    from .session import Session

#: The bytes kept of a node's data. No node of ours has more.
KEPT: Final = 10_000

#: In place of a value: the node does not exist, or no longer.
GONE: Final = NoNode
#: The node's ACL does not let us read it.
FORBIDDEN: Final = NoAuth
#: The time was up.
UNREAD: Final = TimeUp

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
        session = self.session
        limit = min(self.left, session.conf.connect_timeout)
        session.run(asking(lambda done: done(None, None)), timeout=limit, key=session.root)

    def children(self, paths: Iterable[str]) -> list[Outcome]:
        """List the names under each path."""
        return self._all(self.session.children, paths, list)

    def nodes(self, paths: Iterable[str]) -> list[Outcome]:
        """Read (data, stat) of each path. Data beyond 10,000 bytes is cut off."""
        return self._all(self.session.read, paths, lambda node: (node[0][:KEPT], node[1]))

    def _all(
        self, method: Callable[..., None], paths: Iterable[str], kept: Callable[[Any], Any]
    ) -> list[Outcome]:
        def program() -> Program[list[Outcome]]:
            answers = yield [partial(_read, method, path, kept) for path in paths]
            return [_outcome(answer) for answer in answers]

        return self.session.run(program(), timeout=self.left, key=self.session.root)


def _read(method: Callable[..., None], path: str, kept: Callable[[Any], Any], done: Done) -> None:
    """Read one, and keep of it what is wanted as soon as it comes."""
    method(path, lambda value, error: done(None if error else kept(value), error))


def _outcome(answer: Any) -> Outcome:
    for why in (GONE, FORBIDDEN, UNREAD):
        if isinstance(answer, why):
            return why
    if isinstance(answer, Exception):
        raise answer
    return answer
