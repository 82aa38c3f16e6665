"""Names the errors of requests, whichever engine answers: kazoo's classes, by what they mean."""

from __future__ import annotations

from typing import Any, Final

from distlock.engine import kazoo

NoNode: Final = kazoo.NoNodeError
NotEmpty: Final = kazoo.NotEmptyError
NodeExists: Final = kazoo.NodeExistsError
NoAuth: Final = kazoo.NoAuthError
BadVersion: Final = kazoo.BadVersionError
#: The answer is not known: the request may have been carried out or not.
ConnectionLost: Final = kazoo.ConnectionLoss | kazoo.ConnectionClosedError
#: The session is over, says the server. A leader that was deposed before the session began says so,
#: too; the nodes then stay until the session timeout.
SessionOver: Final = kazoo.SessionExpiredError
#: Nobody knows whether the server has carried it out; to be caught.
UNKNOWN: Final = (kazoo.ConnectionLoss, kazoo.ConnectionClosedError, kazoo.SessionExpiredError)
#: For a request that cannot be sent.
NotConnected: Final = kazoo.ConnectionLoss
#: The words with which the trees in Lua and in SQL refuse a step.
REFUSALS: Final = {
    "NONODE": NoNode,
    "NODEEXISTS": NodeExists,
    "BADVERSION": BadVersion,
    "NOTEMPTY": NotEmpty,
    "NOCHILDREN": kazoo.NoChildrenForEphemeralsError,
    "NOWATCH": kazoo.APIError,
}


class NotYet(Exception):
    """The server refuses `until` a time of `time.monotonic`."""

    until = 0.0


class TimeUp(Exception):
    """The server has not answered in time, and the caller waits no longer."""


def failed_step(outcomes: list[Any]) -> Exception | None:
    """Return the error of the step for which a transaction was not carried out."""
    along = kazoo.RolledBackError | kazoo.RuntimeInconsistency
    errors = (one for one in outcomes if isinstance(one, Exception) and not isinstance(one, along))
    return next(errors, None)


def refusal(answer: Any) -> Exception | None:
    """Return the error for which the answer to a `proof` proves nothing: the session is over.

    A transaction has it among its outcomes. NoNode and NoAuth prove as much as success does, since
    the leader checks the session first.
    """
    error = failed_step(answer) if isinstance(answer, list) else None
    return None if isinstance(error, NoNode | NoAuth) else error
