"""Acts on one node of a lock for an operator: asks its owner to release, or breaks the lock."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, TypeAlias

from django.utils.translation import gettext, ngettext

from distlock.inspection.state import Contender, Lock
from distlock.keys.znodes import Participant
from distlock.lease.nodes import LeaseHolder
from distlock.logs.loggers import safe
from distlock.session.registry import session_for
from distlock.signals import announce, operator_acted
from distlock.templatetags.distlock import who
from distlock.text import printable

from .revocation import break_node, revoke
from .semaphore import set_limit

logger = safe(logging.getLogger("distlock.audit"))

Action: TypeAlias = Literal["revoke", "break", "limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One node, as it was read.

    :ivar key: the key of its lock, as far as the tree has kept it
    :ivar template: the template of the key, which the tree does not have
    :ivar holds: whether it held the lock
    :ivar who: its participant, in words
    """

    using: str
    key: str
    template: str = ""
    participant: Participant
    holds: bool
    who: str

    @classmethod
    def of(cls, using: str, lock: Lock, contender: Contender) -> Target:
        return cls(
            using=using,
            key=lock.key,
            participant=contender.participant,
            holds=contender.holds,
            who=who(contender),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLimit:
    """A limit for a semaphore.

    :ivar name: the place of the semaphore under the namespace
    :ivar limit: the number of permits, None for that of the code
    """

    using: str
    key: str
    template: str = ""
    name: str
    limit: int | None
    who: str = ""

    def __str__(self) -> str:
        return "that of the code" if self.limit is None else str(self.limit)


def carry_out(
    action: Action, target: Target | NewLimit, *, operator: str, reason: str = ""
) -> bool:
    """Ask the owner to release, delete the node, or set the limit; log the intent and the outcome.

    :param operator: the operator's name, for the logger ``distlock.audit``: ``root@db1``
    :return: False if the node is gone, or belongs to a lease, which has no process to ask
    :raises LockUnavailable: the lock server did not answer in time, or refused; the outcome is
        unknown
    """
    what = f"{action} {printable(target.key)} in {target.using}: "
    if isinstance(target, NewLimit):
        what += str(target)
    else:
        role, one = "holder" if target.holds else "waiter", target.participant
        what += f"the {role} {printable(target.who)} ({printable(one.path)}, token {one.token})"
    logger.warning("%s is about to %s. Reason: %s", operator, what, reason or "none given")
    try:
        if isinstance(target, NewLimit):
            session = session_for(target.using)
            set_limit(session, f"{session.root}/{target.name}", target.limit, key=target.key)
            done = True
        elif action == "break":
            done = break_node(one, using=target.using)
        else:
            done = not isinstance(one, LeaseHolder) and revoke(one, using=target.using)
    except BaseException:
        logger.warning("%s tried to %s: the outcome is unknown.", operator, what)
        raise
    outcome = "done" if done else "nothing to do, for it has gone"
    logger.warning("%s tried to %s: %s.", operator, what, outcome)
    if done:
        facts = {"action": action, "target": target, "operator": operator, "reason": reason}
        announce(operator_acted, type(target), target, **facts)
    return done


def can_be_asked(contender: Contender) -> bool:
    """Return whether a process is behind the node. A lease has none."""
    return contender.readable and not isinstance(contender.participant, LeaseHolder)


def can_be_broken(contender: Contender) -> bool:
    """Return whether the node is known well enough to delete no other one in its place."""
    return contender.readable and bool(contender.participant.token)


def consequence(lock: Lock, contender: Contender) -> str:
    """Return the consequence of breaking it, in words."""
    if not contender.holds:
        return gettext(
            "It loses its place in the queue. If it still waits, it joins again at the end."
        )
    others = lock.holding - 1
    if others and not (lock.waiters and lock.kind == "semaphore"):
        return ngettext(
            "%(count)d other participant goes on holding it.",
            "%(count)d other participants go on holding it.",
            others,
        ) % {"count": others}
    if lock.waiters:
        return gettext("Next in the queue, and the holder at once: %(who)s.") % {
            "who": who(lock.waiters[0])
        }
    if lock.tasks:
        return gettext("It is free for the next Celery task, or for whoever asks before it.")
    return gettext("Nobody waits for it: it is free for whoever asks next.")
