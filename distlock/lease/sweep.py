"""Removes leases that have ended and that nobody has taken over since.

Exclusion does not depend on it: a caller that wants an ended lease takes it over. The sweep keeps
the tree from filling up with leases of keys that nobody uses again.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.engine.errors import BadVersion, NoNode
from distlock.session.registry import session_for

from .nodes import Term, parent_of_leases
from .operation import remove

if TYPE_CHECKING:
    from concurrent.futures import Future

    from distlock.session.session import Session

#: The number of requests under way at a time.
BATCH = 100


class Swept(NamedTuple):
    """The result of a sweep: the number of leases that were removed, and of those that run on.

    `unreadable` has the paths of nodes without the data of a lease. The sweep keeps them.
    """

    removed: int
    live: int
    unreadable: list[str]


def sweep(using: str = "default") -> Swept:
    """Remove the leases that have ended, by the server's clock.

    It keeps a lease that is renewed or taken over meanwhile. You may repeat it, and run it in
    several processes at a time. The server removes the empty parents, which are container nodes.

    :param using: the alias in ``DISTLOCK``
    :raises LockUnavailable: the lock server did not answer within ``CONNECT_TIMEOUT``, or refused;
        leases removed before that stay removed
    """
    session = session_for(using)
    parent = parent_of_leases(session)
    (names,) = _answers(session, [session.ask(session.children, parent)])
    remaining = iter(names or ())
    swept = Swept(0, 0, [])
    while batch := [f"{parent}/{name}" for name in islice(remaining, BATCH)]:
        swept = _sweep_batch(session, parent, batch, swept)
    return swept


def _sweep_batch(session: Session, parent: str, paths: list[str], swept: Swept) -> Swept:
    asked = [session.ask(session.ask_time, parent)]
    asked += [session.ask(session.read, path) for path in paths]
    clock, *nodes = _answers(session, asked)
    if clock is None:  # the parent has gone, and so have its children
        return swept
    found = {path: Term.read(*node) for path, node in zip(paths, nodes, strict=True) if node}
    terms = {path: term for path, term in found.items() if term is not None}
    ended = {path: term for path, term in terms.items() if session.lease_clock.ended(term)}
    removals = [session.ask(partial(remove, session), path, term) for path, term in ended.items()]
    removed = sum(done is not None for done in _answers(session, removals))
    return Swept(
        swept.removed + removed,
        swept.live + len(terms) - len(ended),
        swept.unreadable + [path for path, term in found.items() if term is None],
    )


def _answers(session: Session, futures: list[Future[Any]]) -> list[Any]:
    """Wait for all answers; None stands for a node that is gone, or changed since the read."""
    deadline = time.monotonic() + session.conf.connect_timeout

    def answer(future: Future[Any]) -> Any:
        try:
            return session.answer(future, max(deadline - time.monotonic(), 0), key="@leases")
        except (NoNode, BadVersion):
            return None

    return [answer(future) for future in futures]
