"""Asks a participant to leave, or breaks its lock: an operator deletes its node.

To ask forces nobody: the node gets a mark, and its process calls the ``on_revoke`` of the lock.
The owner of a broken node learns of it at once: a hold is lost, and a waiter starts anew at the end
of the queue. Running code goes on, though.
Source: Curator's ``Revoker``, ``Revocable`` and ``RevocationListener``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction

from distlock.engine.errors import BadVersion, NoNode
from distlock.inspection.state import LEASES
from distlock.keys.znodes import Participant, with_request
from distlock.lease.nodes import LeaseHolder, Term
from distlock.lease.operation import remove
from distlock.logs.loggers import logger
from distlock.session.programs import Program, Request
from distlock.session.registry import session_for
from distlock.session.session import Session

_L = TypeVar("_L")


def revoke(participant: Participant | None, *, using: str = "default") -> bool:
    """Ask a holder or waiter to leave; return False if it has left already.

    ::

        revoke(zk_lock("report").holder())

    :param participant: the result of ``holder()``, or one of ``participants()``
    :param using: the alias in ``DISTLOCK`` of its lock
    :raises TypeError: `participant` is a key, or owns a `zk_lease`, which has no process to ask
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    if participant is None:
        return False
    if not isinstance(participant, Participant):
        raise TypeError(
            f"revoke() takes a participant, not {participant!r:.80}. Ask the holder of a key by "
            'revoke(zk_lock("report").holder()).'
        )
    # By the path, since a lease may have been read as any other node.
    if participant.path.rpartition("/")[0].endswith(f"/{LEASES}"):
        raise TypeError(
            "A lease belongs to an owner id and cannot be asked to leave; the request would "
            "replace its data, and it would never end. Call release() as its owner, or break "
            "it: manage.py distlock break KEY."
        )

    def request(session: Session, data: bytes, stat: Any) -> Request:
        return partial(session.write, participant.path, with_request(data), stat.version)

    return _change(participant.path, request, using)


def break_node(participant: Participant, *, using: str = "default") -> bool:
    """Delete the node of a participant; return False if it is gone.

    It never deletes another node: one at the same path has another token, and so has a lease that
    somebody has taken over.

    :raises LockUnavailable: ZooKeeper refused, or did not answer in time; then the outcome is
        unknown
    """
    return _change(participant.path, partial(_deletion, participant), using)


def _change(path: str, how: Callable[[Session, bytes, Any], Request | None], using: str) -> bool:
    """Read a node and send what `how` makes of it; return False if it is gone, or not to change.

    A request of `how` fails if somebody has written the node since; then this starts anew.
    """
    session = session_for(using)

    def program() -> Program[bool]:
        while True:
            try:
                request = how(session, *(yield partial(session.read, path)))
                if request is not None:
                    yield request
            except NoNode:
                return False
            except BadVersion:
                continue
            return request is not None

    return session.run(program(), key=path)


def _deletion(participant: Participant, session: Session, data: bytes, stat: Any) -> Request | None:
    """Return a request that deletes the node as read, or None if it is another node."""
    lease = isinstance(participant, LeaseHolder)
    term = Term.read(data, stat) if lease else None
    # A lease's node without readable data is the same one as long as nobody writes to it.
    unread = stat.mzxid if lease else stat.czxid
    if participant.token != (term.token if term else unread):
        return None
    if term is not None:
        return partial(remove, session, participant.path, term)
    return partial(session.remove, participant.path, stat.version)


def check_listener(on_revoke: object) -> None:
    """Raise TypeError for an ``on_revoke`` that a thread cannot call."""
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
