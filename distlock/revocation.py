"""Cooperative revocation: asking a participant to leave its place, and hearing that one is asked.

Nothing is taken away. The participant's node gets a mark, its process calls the ``on_revoke`` it
gave, and that decides what to do; a participant without one goes on as if nothing had happened.
Source: Curator's ``Revoker``, ``Revocable`` and ``RevocationListener``.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from .client import NoNode
from .session import session_for
from .znodes import REVOKE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .znodes import Participant

logger = logging.getLogger("distlock")

_L = TypeVar("_L")


def revoke(participant: Participant, *, using: str = "default") -> bool:
    """Ask a holder or waiter to leave; return False where it has left already.

    ::

        for participant in zk_lock("report").participants():
            revoke(participant)

    :param participant: one of those that ``participants()`` or ``holder()`` returned
    :param using: the alias in ``DISTLOCK`` of its lock
    :raises LockUnavailable: ZooKeeper did not answer in time, or refused
    """
    session = session_for(using)
    written = session.ask(session.write, participant.path, REVOKE, -1)
    try:
        session.answer(written, session.conf.connect_timeout, key=participant.path)
    except NoNode:
        return False
    return True


def listener(on_revoke: Callable[[_L], object] | None, lock: _L) -> Callable[[], None] | None:
    """Return what runs ``on_revoke(lock)`` in a thread of its own, where it may take its time."""
    if on_revoke is None:
        return None
    listening = partial(_run, on_revoke, lock)

    def told() -> None:
        threading.Thread(target=listening, name="distlock-revoke", daemon=True).start()

    return told


def _run(on_revoke: Callable[[_L], object], lock: _L) -> None:
    try:
        on_revoke(lock)
    except Exception:
        logger.exception("on_revoke of %r failed; the lock is still held.", lock)
