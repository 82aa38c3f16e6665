"""Defines the filters of the admin page: durations, times, and text that anybody may choose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.utils import dateformat
from django.utils.html import format_html
from django.utils.timezone import localtime
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
    text = durations()[0 if days else 1 if hours else 2 if minutes else 3]
    return text % {"days": days, "hours": hours, "minutes": minutes, "seconds": rest}


@register.simple_tag
def durations() -> list[str]:
    """Return how to write a duration of days, of hours, of minutes and of seconds."""
    return [
        pgettext("duration", "%(days)d d %(hours)d h"),
        pgettext("duration", "%(hours)d h %(minutes)d min"),
        pgettext("duration", "%(minutes)d min %(seconds)d s"),
        pgettext("duration", "%(seconds)d s"),
    ]


@register.simple_tag(takes_context=True)
def clock(context: Mapping[str, Any], contender: Contender) -> str:
    """Return for how long it has held or waited, as an element that ``page.js`` keeps running.

    In the answer to a poll it has no text, so that the answer stays the same.
    """
    since = contender.since
    if since is None or (contender.holds and contender.is_new):
        return held(contender)
    if contender.held is not None:
        since += timedelta(seconds=round((contender.seconds or 0) - contender.held, 3))
    when = moment(localtime(since))
    if at_most := contender.holds and contender.held is None:
        since -= timedelta(seconds=1)  # a clock rounds down
    age = "" if context["fragment"] else seconds((context["now"] - since).total_seconds())
    clock = format_html('<time datetime="{}" title="{}">{}</time>', since.isoformat(), when, age)
    if at_most:
        pattern = pgettext("duration", "under %(duration)s")
        return format_html(pattern.replace("%(duration)s", "{}"), clock)
    return clock


@register.filter
def bar(count: int) -> int:
    """Return the length of a bar for a queue, of 100, the same on each page: 1 is 15, 10 is 52."""
    return min(100, round(50 * math.log10(1 + count)))


@register.filter
def short(value: float) -> str:
    """Return a number of seconds in one piece, and in milliseconds below 1: ``40 ms``."""
    text = seconds(value)
    if value < 1:
        text = pgettext("duration", "%(milliseconds).0f ms") % {"milliseconds": 1000 * value}
    return text.replace(" ", "\N{NO-BREAK SPACE}")


@register.filter
def state(contender: Contender) -> str:
    """Return whether a contender holds or waits, and for how long."""
    if contender.seconds is None:
        return gettext("holds") if contender.holds else gettext("waits")
    if not contender.holds:
        return gettext("waits for %(duration)s") % {"duration": seconds(contender.seconds)}
    text = gettext("holds: %(duration)s") % {"duration": held(contender)}
    if contender.participant.waited is None or contender.participant.waited < 0.1:
        return text
    waited = gettext("waited for %(duration)s")  # xgettext reads no f-strings
    return f"{text}, {waited % {'duration': seconds(contender.participant.waited)}}"


@register.filter
def held(contender: Contender) -> str:
    """Return how long a contender has held, as far as is known."""
    if contender.held is not None or contender.seconds is None:
        return seconds(contender.held)
    if contender.is_new:
        return pgettext("duration", "just granted")
    return pgettext("duration", "under %(duration)s") % {"duration": seconds(contender.seconds)}


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
