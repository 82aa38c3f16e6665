"""What an operator does to one node of a lock: who was shown, what will come of it, and the doing.

The form carries the very node that was shown, signed: neither another node nor whoever holds the
lock by the time of the click can be hit by it (`breaking`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from django.core import signing
from django.utils.translation import gettext, ngettext

from distlock.keys.znodes import Participant
from distlock.lease.nodes import LeaseHolder
from distlock.session.registry import session_for
from distlock.templatetags.distlock import who

from .breaking import break_node
from .revocation import revoke

if TYPE_CHECKING:
    from distlock.inspection.snapshot import Contender, Lock

_SALT: Final = "distlock.admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One node, as it was shown.

    :ivar name: the name of its lock
    :ivar token: that of the participant, by which another node at the same place is told apart
    :ivar lease: whether it is a persistent lease
    :ivar holds: whether it held the lock when it was shown
    :ivar who: who stood on it, in words
    """

    using: str
    name: str
    path: str
    token: int
    lease: bool
    holds: bool
    who: str

    @classmethod
    def of(cls, using: str, lock: Lock, contender: Contender) -> Target:
        """Return the target for somebody who was found."""
        participant = contender.participant
        return cls(
            using=using,
            name=lock.name,
            path=participant.path,
            token=participant.token,
            lease=isinstance(participant, LeaseHolder),
            holds=contender.holds,
            who=who(contender),
        )

    def sign(self) -> str:
        """Return it as a text that cannot be changed unnoticed."""
        return signing.dumps(asdict(self), salt=_SALT, compress=True)

    @classmethod
    def read(cls, text: str, *, using: str, name: str) -> Target:
        """Return what was signed.

        :raises BadSignature: it was not, or is about another lock, or no node of a lock
        """
        try:
            target = cls(**signing.loads(text, salt=_SALT))
        except TypeError as error:  # signed by another version of this app
            raise signing.BadSignature from error
        place = f"{session_for(using).root}/{name}"
        inside = target.path == place if target.lease else target.path.startswith(f"{place}/")
        if (target.using, target.name) != (using, name) or not inside:
            raise signing.BadSignature
        return target

    # --- doing ----------------------------------------------------------------------------------

    @property
    def participant(self) -> Participant:
        """As much of whom was shown as the doing needs."""
        kind = LeaseHolder if self.lease else Participant
        return kind(path=self.path, sequence=0, token=self.token, session_id=0)

    def ask_to_release(self) -> bool:
        """Ask; return False where the node is gone, or where nobody is behind it: a lease.

        :raises LockUnavailable: ZooKeeper did not answer in time, or refused
        """
        return not self.lease and revoke(self.participant, using=self.using)

    def break_it(self) -> bool:
        """Delete the node; return False where it is gone.

        :raises LockUnavailable: ZooKeeper did not answer in time, or refused
        """
        return break_node(self.participant, using=self.using)


def can_be_asked(contender: Contender) -> bool:
    """Whether there is anybody behind the node who could hear it. A lease has no process."""
    return contender.readable and not isinstance(contender.participant, LeaseHolder)


def can_be_broken(contender: Contender) -> bool:
    """Whether it is known well enough to delete no other node in its place."""
    return contender.readable and bool(contender.participant.token)


def consequence(lock: Lock, contender: Contender) -> str:
    """Return what breaking it will lead to, in words."""
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
