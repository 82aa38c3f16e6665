"""Asks a participant to leave, and calls back the one that is asked: cooperative revocation.

It forces nobody. The participant's node gets a mark, and its process calls the ``on_revoke`` of the
lock, which decides what to do. A participant without one goes on as if nothing had happened.
Source: Curator's ``Revoker``, ``Revocable`` and ``RevocationListener``.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import iscoroutinefunction

from distlock.inspection.state import LEASES
from distlock.keys.znodes import with_request
from distlock.logs.loggers import safe

from .breaking import change

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.keys.znodes import Participant
    from distlock.session.session import Session

logger = safe(logging.getLogger("distlock"))

_L = TypeVar("_L")


def revoke(participant: Participant | None, *, using: str = "default") -> bool:
    """Ask a holder or waiter to leave; return False if it has left already.

    ::

        revoke(zk_lock("report").holder())

    :param participant: the result of ``holder()``, or one of ``participants()``
    :param using: the alias in ``DISTLOCK`` of its lock
    :raises TypeError: the participant owns a `zk_lease`, which has no process to ask
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    if participant is None:
        return False
    # By the path, since a lease may have been read as any other node.
    if participant.path.rpartition("/")[0].endswith(f"/{LEASES}"):
        raise TypeError(
            "A lease belongs to an owner id and cannot be asked to leave; the request would "
            "replace its data, and it would never end. Call release() as its owner, or break "
            "it: manage.py distlock break KEY."
        )

    def request(session: Session, data: bytes, stat: Any) -> Callable[..., None]:
        return partial(session.write, participant.path, with_request(data), stat.version)

    return change(participant.path, request, using)


def check_listener(on_revoke: object) -> None:
    """Raise for an ``on_revoke`` that a thread cannot call.

    :raises TypeError: `on_revoke` is no function, or a coroutine function
    """
    if on_revoke is not None and (not callable(on_revoke) or iscoroutinefunction(on_revoke)):
        raise TypeError(
            "on_revoke must be a function, which a thread of its own calls with the lock, and no "
            f"coroutine function: {on_revoke!r}. To reach a task from it, use "
            "loop.call_soon_threadsafe()."
        )


def listener(on_revoke: Callable[[_L], object], lock: _L) -> Callable[[], None]:
    """Return a function that runs ``on_revoke(lock)`` in a thread of its own."""

    def run() -> None:
        try:
            on_revoke(lock)
        except Exception:
            logger.exception("on_revoke of %r failed; the lock is still held.", lock)

    return lambda: threading.Thread(target=run, name="distlock-revoke", daemon=True).start()
