"""Builds the admin's page of one lock: its holders, and its waiters in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from distlock.locks.actions import can_be_asked, can_be_broken
from distlock.text import MAX_SHOWN, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distlock.inspection.state import Contender, Lock

#: The most holders, and the most waiters, on the page.
DEPTH: Final = 200


def line(lock: Lock) -> dict[str, Any]:
    """Return a lock with a row for each participant, and the numbers of those beyond."""
    return {
        "lock": lock,
        "holders": [_row(lock, one, 0) for one in lock.holders],
        "waiters": [_row(lock, one, at) for at, one in enumerate(lock.waiters, 1)],
        "more_holders": lock.holding - len(lock.holders),
        "more_waiters": lock.waiting - len(lock.waiters),
    }


def _row(lock: Lock, contender: Contender, number: int) -> dict[str, Any]:
    """Return a participant with its place in the queue, its node and what can be done.

    ``target`` has the parameters that name it in the address of an action.
    """
    node = contender.participant.path.removeprefix(lock.path).removeprefix("/")
    fits = len(node) <= MAX_SHOWN
    return {
        "contender": contender,
        "node": printable(node),
        "number": number,
        "askable": fits and can_be_asked(contender),
        "breakable": fits and can_be_broken(contender),
        "target": urlencode({"node": node, "token": contender.participant.token}) if fits else "",
    }


def find(locks: Iterable[Lock], node: str, token: str) -> tuple[Lock, Contender] | None:
    """Return the contender of a node, if the node still has this token."""
    for lock in locks:
        for contender in lock.contenders:
            one = contender.participant
            if one.path == f"{lock.path}/{node}".rstrip("/") and str(one.token) == token:
                return lock, contender
    return None
