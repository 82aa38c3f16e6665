"""Breaks a lock: an operator deletes the node of one holder or waiter.

Its owner learns of it at once: a hold is lost, and a waiter starts anew at the end of the queue.
Running code goes on, though. So look first who it is, and rather ask (`revoke`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from distlock.engine.errors import BadVersion, NoNode
from distlock.lease.nodes import LeaseHolder, Term
from distlock.lease.operation import remove
from distlock.session.registry import session_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.keys.znodes import Participant
    from distlock.session.session import Session

    #: Sends a request, given what to call with the answer.
    Request: TypeAlias = Callable[..., None]


def break_node(participant: Participant, *, using: str = "default") -> bool:
    """Delete the node of a participant; return False if it is gone.

    It never deletes another node: one at the same path has another token, and so has a lease that
    somebody has taken over. It does delete a node that was only renewed, or asked to leave, since
    the snapshot.

    :param participant: a participant from `snapshot`, ``participants()`` or ``holder()``
    :param using: the alias in ``DISTLOCK`` of its lock
    :raises LockUnavailable: ZooKeeper refused, or did not answer in time; then the outcome is
        unknown
    """
    return change(participant.path, partial(_deletion, participant), using)


def change(path: str, how: Callable[[Session, bytes, Any], Request | None], using: str) -> bool:
    """Read a node and send what `how` makes of it; return False if it is gone, or not to change.

    :param how: returns a request that fails if somebody has written the node since; then it starts
        anew
    :raises LockUnavailable: the lock server refused, or did not answer in time
    """
    session = session_for(using)
    deadline = time.monotonic() + session.conf.connect_timeout

    def ask(method: Callable[..., None], *args: Any) -> Any:
        left = max(deadline - time.monotonic(), 0)
        return session.call(method, *args, timeout=left, key=path)

    while True:
        try:
            request = how(session, *ask(session.read, path))
            if request is None:
                return False
            ask(request)
        except NoNode:
            return False
        except BadVersion:
            continue
        else:
            return True


def _deletion(participant: Participant, session: Session, data: bytes, stat: Any) -> Request | None:
    """Return a request that deletes the node as read, or None if it is another node."""
    term = Term.read(data, stat) if isinstance(participant, LeaseHolder) else None
    if participant.token != (term.token if term else _token(participant, stat)):
        return None
    if term is not None:
        return partial(remove, session, participant.path, term)
    return partial(session.remove, participant.path, stat.version)


def _token(participant: Participant, stat: Any) -> int:
    # A node without the data of a lease is the same one as long as nobody writes to it.
    return int(stat.mzxid if isinstance(participant, LeaseHolder) else stat.czxid)
