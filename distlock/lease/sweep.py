"""Removes leases that have ended and that nobody has taken over since.

Exclusion does not depend on it: a caller that wants an ended lease takes it over. The sweep keeps
the tree from filling up with leases of keys that nobody uses again.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from distlock.engine.errors import BadVersion, NoNode
from distlock.session.programs import Request, each
from distlock.session.registry import session_for

from .nodes import Term, parent_of_leases
from .operation import remove

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

    def answers(*requests: Request) -> list[Any]:
        """Ask at once; None stands for a node that is gone, or changed since the read."""
        program = each(requests, NoNode, BadVersion)
        return session.run(program, timeout=session.conf.connect_timeout, key="@leases")

    (names,) = answers(partial(session.children, parent))
    remaining = iter(names or ())
    removed, live, unreadable = 0, 0, list[str]()
    while paths := [f"{parent}/{name}" for name in islice(remaining, BATCH)]:
        reads = [partial(session.read, path) for path in paths]
        clock, *nodes = answers(partial(session.ask_time, parent), *reads)
        if clock is None:  # the parent has gone, and so have its children
            break
        found = {path: Term.read(*node) for path, node in zip(paths, nodes, strict=True) if node}
        unreadable += [path for path, term in found.items() if term is None]
        terms = {path: term for path, term in found.items() if term is not None}
        ended = {path: term for path, term in terms.items() if session.lease_clock.ended(term)}
        live += len(terms) - len(ended)
        removals = [partial(remove, session, path, term) for path, term in ended.items()]
        removed += sum(done is not None for done in answers(*removals))
    return Swept(removed, live, unreadable)
