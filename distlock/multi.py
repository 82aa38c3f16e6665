"""Several writes as one: all of them are carried out, or none (ZooKeeper's ``multi``)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import RolledBackError, RuntimeInconsistency
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData, Transaction

from .requests import access_list

if TYPE_CHECKING:
    from .client import Done
    from .session import Session


def transact(session: Session, steps: list[Any], done: Done) -> None:
    """Send the steps as one request; the value is the list of their outcomes."""
    session.send(Transaction(steps), partial(_answered, done))


def creation(session: Session, path: str) -> Any:
    """Create a node that outlives the session, without data."""
    return Create(path, b"", access_list(session.conf), 0)


def presence(path: str) -> Any:
    """Go on only if there is such a node."""
    return CheckVersion(path, -1)


def writing(path: str, data: bytes, version: int) -> Any:
    """Replace a node's data if it has this version; the outcome is the stat."""
    return SetData(path, data, version)


def deletion(path: str, version: int = -1) -> Any:
    """Delete a node if it has this version, -1 for any."""
    return Delete(path, version)


def _answered(done: Done, outcomes: Any, error: BaseException | None) -> None:
    """Tell the error of the step that has failed, among those that failed with it."""
    for outcome in outcomes or ():
        along = RolledBackError | RuntimeInconsistency
        if isinstance(outcome, Exception) and not isinstance(outcome, along):
            outcomes, error = None, outcome
            break
    done(outcomes, error)
