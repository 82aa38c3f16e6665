"""Records what operators do to locks: the intent before the act, the outcome after it.

Each record is two lines of the logger ``distlock.audit``. The admin keeps an entry in its log, too.
"""

from __future__ import annotations

import logging

from distlock.locks.actions import Action, Target
from distlock.signals import announce, operator_acted
from distlock.text import printable

from .loggers import safe

logger = safe(logging.getLogger("distlock.audit"))


def carry_out(action: Action, target: Target, *, operator: str, reason: str = "") -> bool:
    """Ask a participant to release, or break its lock, and keep a record of it.

    :param operator: the operator's name, for the log: ``root@db1``
    :return: False if there was nothing to do
    :raises LockUnavailable: the lock server did not answer in time, or refused;
        the outcome is unknown
    """
    role, one = "holder" if target.holds else "waiter", target.participant
    what = (
        f"{action} {printable(target.key)} in {target.using}: the {role} {printable(target.who)} "
        f"({printable(one.path)}, token {one.token})"
    )
    logger.warning("%s is about to %s. Reason: %s", operator, what, reason or "none given")
    try:
        done = target.act(action)
    except BaseException:
        logger.warning("%s tried to %s: the outcome is unknown.", operator, what)
        raise
    outcome = "done" if done else "nothing to do, for it has gone"
    logger.warning("%s tried to %s: %s.", operator, what, outcome)
    if done:
        facts = {"action": action, "target": target, "operator": operator, "reason": reason}
        announce(operator_acted, type(target), target, **facts)
    return done
