"""Defines the filters of the admin page: durations, times, and text that anybody may choose."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from django import template
from django.utils import dateformat
from django.utils.translation import gettext, pgettext

from distlock.inspection.state import Contender
from distlock.lease.nodes import LeaseHolder
from distlock.text import printable as printable_text

register = template.Library()


@register.filter
def printable(value: object) -> str:
    """Return a text without newlines, escapes and bidi marks."""
    return printable_text(str(value))


@register.filter
def seconds(value: float | None) -> str:
    """Return a number of seconds in two units at most: ``0.4 s``, ``42 s``, ``3 min 5 s``."""
    if value is None:
        return pgettext("duration", "unknown")
    if value < 10:
        return pgettext("duration", "%(seconds).1f s") % {"seconds": value}
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        text = pgettext("duration", "%(days)d d %(hours)d h")
    elif hours:
        text = pgettext("duration", "%(hours)d h %(minutes)d min")
    elif minutes:
        text = pgettext("duration", "%(minutes)d min %(seconds)d s")
    else:
        text = pgettext("duration", "%(seconds)d s")
    return text % {"days": days, "hours": hours, "minutes": minutes, "seconds": rest}


@register.filter
def state(contender: Contender) -> str:
    """Return whether a contender holds or waits, and how long ago it joined the queue."""
    if contender.seconds is None:
        return gettext("holds") if contender.holds else gettext("waits")
    text = (
        gettext("holds, came %(duration)s ago")
        if contender.holds
        else gettext("waits for %(duration)s")
    )
    return text % {"duration": seconds(contender.seconds)}


@register.filter(expects_localtime=True)
def moment(value: datetime) -> str:
    """Return a time with its zone: ``2026-11-22 13:37:00 +0100``."""
    return dateformat.format(value, "Y-m-d H:i:s O")


@register.filter
def who(contender: Contender) -> str:
    """Return the participant of a node, in words."""
    one = contender.participant
    if not contender.readable:
        return gettext("somebody whose node may not be read")
    if isinstance(one, LeaseHolder):
        if one.peer:
            return gettext("a node without readable data, which never expires")
        return printable_text(str(replace(one, expires=None)))
    if one.peer:
        return gettext("a peer that does not say who it is")
    name = printable_text(str(replace(one, revoked=False)))
    if one.revoked and not name:
        return gettext("a participant that was asked to leave")
    return name or gettext("an owner without a name")


@register.filter
def kind(value: str) -> str:
    """Return the kind of a lock, as `snapshot.Kind` has it, in the reader's language."""
    return {
        "mutex": pgettext("kind of lock", "mutex"),
        "read/write": pgettext("kind of lock", "read/write"),
        "semaphore": pgettext("kind of lock", "semaphore"),
        "lease": pgettext("kind of lock", "lease"),
        "leader": pgettext("kind of lock", "leader"),
        "unknown": pgettext("kind of lock", "unknown"),
    }[value]


@register.filter
def mode(value: str) -> str:
    """Return in words what a contender of a read/write lock does."""
    if value == "read":
        return pgettext("mode of a contender", "reads")
    return pgettext("mode of a contender", "writes")
