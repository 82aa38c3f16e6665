"""Removes the cool-downs that nobody waits behind (``hold_at_least=``)."""

from __future__ import annotations

from functools import partial

from distlock.engine.errors import NoNode
from distlock.keys import znodes
from distlock.session.programs import BATCH, each
from distlock.session.registry import session_for
from distlock.session.server_time import clock_of


def sweep(using: str = "default") -> int:
    """Remove the cool-downs that are over, by the server's clock, and return how many.

    Exclusion does not depend on it, as with `persistent.sweep`.

    :param using: the alias in ``DISTLOCK``
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    session = session_for(using)
    root = session.root
    clock = session.run(clock_of(session), key=root)
    (names,) = session.run(each([partial(session.children, root)], NoNode), key=root)
    lines = [f"{root}/{name}" for name in names or () if not name.startswith("@")]
    removed = 0
    for start in range(0, len(lines), BATCH):  # each with a deadline of its own: keys may be many
        some = lines[start : start + BATCH]
        lists = each([partial(session.children, line) for line in some], NoNode)
        ended = [
            f"{line}/{name}"
            for line, names in zip(some, session.run(lists, key=root), strict=True)
            for name in {*(names or ())} - {*znodes.without_ended(names or (), clock.now())}
        ]
        removals = [partial(session.remove, path, -1) for path in ended]
        session.run(each(removals, NoNode), key=root)
        removed += len(ended)
    return removed
