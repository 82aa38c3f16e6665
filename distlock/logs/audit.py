"""Records what operators do to locks: the intent before the act, the outcome after it.

Each record is two lines of the logger ``distlock.audit``. For an operator with a Django user it is
an entry of the admin's log, too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from django.db import DatabaseError
from django.utils.translation import gettext_lazy

from distlock.signals import announce, operator_acted
from distlock.text import printable

from .loggers import safe

if TYPE_CHECKING:
    from django.contrib.admin.models import LogEntry
    from django.utils.functional import Promise

    from distlock.locks.actions import Target

logger = safe(logging.getLogger("distlock.audit"))

Action: TypeAlias = Literal["revoke", "break"]


class _Words(NamedTuple):
    """An action in words: for the logger, and for the admin's log before and after the act."""

    plan: str
    tried: Promise
    did: Promise


_ASK: Final = _Words(
    "ask %(who)s to release %(lock)s",
    gettext_lazy(
        "Tried to ask %(who)s to release %(lock)s (%(node)s, token %(token)d); outcome unknown."
    ),
    gettext_lazy("Asked %(who)s to release %(lock)s (%(node)s, token %(token)d)."),
)
_BREAK: Final = _Words(
    "break the lock of %(who)s on %(lock)s",
    gettext_lazy(
        "Tried to break the lock of %(who)s on %(lock)s (%(node)s, token %(token)d); "
        "outcome unknown."
    ),
    gettext_lazy("Broke the lock of %(who)s on %(lock)s (%(node)s, token %(token)d)."),
)
_REMOVE: Final = _Words(
    "remove %(who)s from the queue of %(lock)s",
    gettext_lazy(
        "Tried to remove %(who)s from the queue of %(lock)s (%(node)s, token %(token)d); "
        "outcome unknown."
    ),
    gettext_lazy("Removed %(who)s from the queue of %(lock)s (%(node)s, token %(token)d)."),
)


def carry_out(
    action: Action, target: Target, *, operator: str, user_id: Any = None, reason: str = ""
) -> bool:
    """Ask a participant to release, or break its lock, and keep a record of it.

    If the intent cannot be recorded, this does nothing.

    :param operator: the operator's name, for the log: ``root@db1``
    :param user_id: the operator's Django user, who gets an entry in the admin's log
    :param reason: the reason, for both logs
    :return: False if the node is gone, or belongs to a lease, which cannot be asked
    :raises LockUnavailable: the lock server did not answer in time, or refused;
        the outcome is unknown
    """
    entry = None if user_id is None else _entry(action, target, user_id, reason)
    role = "holder" if target.holds else "waiter"
    what = f"{_text(_words(action, target).plan, target)} in {target.using}"
    what = f"{what} ({printable(target.path)}, {role}, token {target.token})"
    logger.warning("%s is about to %s. Reason: %s", operator, what, reason or "none given")
    try:
        done = target.ask_to_release() if action == "revoke" else target.break_it()
    except BaseException:
        logger.warning("%s tried to %s: the outcome is unknown.", operator, what)
        raise
    outcome = "done" if done else "nothing to do, for it has gone"
    logger.warning("%s tried to %s: %s.", operator, what, outcome)
    if entry is not None:
        _complete(entry, action, target, reason, done=done)
    if done:
        facts = {"action": action, "target": target, "operator": operator, "reason": reason}
        announce(operator_acted, type(target), target, **facts)
    return done


def _entry(action: Action, target: Target, user_id: Any, reason: str) -> LogEntry:
    # Imported here, since the commands work without Django's admin.
    from django.contrib.admin.models import CHANGE, DELETION, LogEntry  # noqa: PLC0415
    from django.contrib.contenttypes.models import ContentType  # noqa: PLC0415

    from distlock.models import Lock  # noqa: PLC0415

    lock = Lock.at(target.using, target.name)
    return LogEntry.objects.create(
        user_id=user_id,
        content_type=ContentType.objects.get_for_model(Lock),
        object_id=lock.pk,
        object_repr=str(lock)[:200],
        action_flag=CHANGE if action == "revoke" else DELETION,
        change_message=_text(_words(action, target).tried, target, reason),
    )


def _complete(entry: LogEntry, action: Action, target: Target, reason: str, *, done: bool) -> None:
    entry.change_message = _text(_words(action, target).did, target, reason)
    try:
        if done:
            entry.save()
        else:  # the admin's log lists changes
            entry.delete()
    except DatabaseError:
        logger.exception("The admin's log still says that the outcome is unknown.")


def _words(action: Action, target: Target) -> _Words:
    if action == "revoke":
        return _ASK
    return _BREAK if target.holds else _REMOVE


def _text(message: str | Promise, target: Target, reason: str = "") -> str:
    text = str(message) % {
        "who": target.who,
        "lock": printable(target.key),
        "node": printable(target.path),
        "token": target.token,
    }
    return f"{text} {reason}".rstrip()
