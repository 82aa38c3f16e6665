"""Breaking a lock: an operator deletes the node of one holder or waiter.

Its owner learns of it at once (the hold is lost, and whoever waited starts anew at the end of the
line), but code that is at work is not stopped: look first who it is, and rather ask (`revoke`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from distlock.engine.client import BadVersion, NoNode
from distlock.lease.nodes import LeaseHolder, Term
from distlock.lease.operation import remove
from distlock.session.registry import session_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.keys.znodes import Participant
    from distlock.session.session import Session


def break_node(participant: Participant, *, using: str = "default") -> bool:
    """Delete the node of a participant; return False where it is not there any more.

    It deletes what was shown and nothing else: another node at the same place has another token,
    and so has a lease that somebody has taken over. What was only renewed, or asked to leave, since
    it was shown is deleted.

    :param participant: who was shown by `snapshot`, ``participants()`` or ``holder()``
    :param using: the alias in ``DISTLOCK`` of its lock
    :raises LockUnavailable: ZooKeeper refused, or did not answer in time; then it may be deleted,
        or not
    """
    session = session_for(using)
    deadline = time.monotonic() + session.conf.connect_timeout

    def ask(method: Callable[..., None], *args: Any) -> Any:
        left = max(deadline - time.monotonic(), 0)
        return session.answer(session.ask(method, *args), left, key=participant.path)

    while True:
        try:
            data, stat = ask(session.read, participant.path)
            delete = _deletion(session, participant, data, stat)
            if delete is None:
                return False
            ask(delete)
        except NoNode:
            return False
        except BadVersion:  # it was renewed, or taken over, in this instant
            continue
        else:
            return True


def _deletion(
    session: Session, participant: Participant, data: bytes, stat: Any
) -> Callable[..., None] | None:
    """Return what deletes the node as it was read, None where it is not the one that was shown."""
    term = Term.read(data, stat) if isinstance(participant, LeaseHolder) else None
    if participant.token != (term.token if term else _token(participant, stat)):
        return None
    if term is not None:
        return partial(remove, session, participant.path, term)
    return partial(session.remove, participant.path, stat.version)


def _token(participant: Participant, stat: Any) -> int:
    # What says nothing of a lease is what was shown as long as nobody writes to it.
    return int(stat.mzxid if isinstance(participant, LeaseHolder) else stat.czxid)
