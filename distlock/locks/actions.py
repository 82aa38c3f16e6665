"""Acts on one node of a lock for an operator: asks its owner to release, or breaks the lock.

The form carries the node that it showed, signed. So a click cannot hit another node, nor the
participant that holds the lock by then (`breaking`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from django.core import signing
from django.utils.translation import gettext, ngettext

from distlock.inspection.state import key_of
from distlock.keys.znodes import Participant
from distlock.lease.nodes import LeaseHolder
from distlock.session.registry import session_for
from distlock.templatetags.distlock import who

from .breaking import break_node
from .revocation import revoke

if TYPE_CHECKING:
    from distlock.inspection.state import Contender, Lock

_SALT: Final = "distlock.admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One node, as the page showed it.

    :ivar name: the name of its lock
    :ivar token: the participant's token, which differs from that of another node at the same path
    :ivar lease: whether it is a persistent lease
    :ivar holds: whether it held the lock when it was shown
    :ivar who: its participant, in words
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
        """Return the target for a contender."""
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
        """Return the target as signed text."""
        return signing.dumps(asdict(self), salt=_SALT, compress=True)

    @classmethod
    def read(cls, text: str, *, using: str, name: str) -> Target:
        """Return the target of a signed text.

        :raises BadSignature: the text is not signed, or names another lock, or no node of a lock
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

    @property
    def key(self) -> str:
        """The key of its lock, as far as the tree has kept it."""
        return key_of(self.name)[0]

    @property
    def template(self) -> str:
        """The template of the key, which the tree does not have."""
        return ""

    # --- acting ---------------------------------------------------------------------------------

    @property
    def participant(self) -> Participant:
        """The participant, as far as the actions need it."""
        kind = LeaseHolder if self.lease else Participant
        return kind(path=self.path, sequence=0, token=self.token, session_id=0)

    def ask_to_release(self) -> bool:
        """Ask the owner; return False if the node is gone, or is a lease, which has no process.

        :raises LockUnavailable: the lock server did not answer in time, or refused
        """
        return not self.lease and revoke(self.participant, using=self.using)

    def break_it(self) -> bool:
        """Delete the node; return False if it is gone.

        :raises LockUnavailable: the lock server did not answer in time, or refused
        """
        return break_node(self.participant, using=self.using)


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
