"""Acts on one node of a lock for an operator: asks its owner to release, or breaks the lock.

It never hits another node, nor the participant that holds the lock by then (`break_node`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from django.utils.translation import gettext, ngettext

from distlock.inspection.state import Contender, Lock
from distlock.keys.znodes import Participant
from distlock.lease.nodes import LeaseHolder
from distlock.templatetags.distlock import who

from .revocation import break_node, revoke

Action: TypeAlias = Literal["revoke", "break"]


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
        """Return the target for a contender."""
        return cls(
            using=using,
            key=lock.key,
            participant=contender.participant,
            holds=contender.holds,
            who=who(contender),
        )

    def act(self, action: Action) -> bool:
        """Ask the owner, or delete the node.

        :return: False if the node is gone, or belongs to a lease, which has no process to ask
        :raises LockUnavailable: the lock server did not answer in time, or refused
        """
        if action == "break":
            return break_node(self.participant, using=self.using)
        lease = isinstance(self.participant, LeaseHolder)
        return not lease and revoke(self.participant, using=self.using)


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
    return gettext("Nobody waits for it: it is free for whoever asks next.")
