"""Says in words who holds a lock, who waits for it, and whether that is a deadlock."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from django.utils.timezone import localtime
from django.utils.translation import gettext, ngettext

from distlock.inspection.state import Contender, Lock, brief
from distlock.inspection.wait_graph import Cycle, Link
from distlock.lease.nodes import LeaseHolder
from distlock.templatetags.distlock import held, moment, seconds, who
from distlock.text import printable

#: The most holders, and the most waits of holders, that are named.
MOST: Final = 3


class Explanation(NamedTuple):
    """Some sentences, and whether they tell of a deadlock."""

    text: str
    deadlock: bool


def explain(lock: Lock, locks: Iterable[Lock], cycles: Iterable[Cycle]) -> Explanation:
    """Explain one lock, for an operator who has asked why it takes so long.

    :param locks: all locks of the namespace, fully read: its holder may wait for another one
    :param cycles: their deadlocks
    """
    if not lock.readable:
        return Explanation(gettext("The ACL does not let us read who is there."), deadlock=False)
    waits = list(_waits(lock.holders, locks))
    owners = {one.owner for one in lock.contenders} | {link.waiter.owner for link in waits}
    links = [
        link
        for cycle in cycles
        if owners & {link.waiter.owner for link in cycle.links}
        for link in cycle.links
    ]
    said = "; ".join(map(_wait, links or waits[:MOST]))
    if links:
        said = gettext("Deadlock: %(waits)s.") % {"waits": said}
    else:
        said = f"{said}. " * bool(said) + gettext("No deadlock.")
    text = " ".join(filter(None, [_held(lock), _waited(lock), _crowd(lock), _tasks(lock), said]))
    return Explanation(text, deadlock=bool(links))


def _held(lock: Lock) -> str:
    if not lock.holding:
        return gettext("Nobody holds %(lock)s.") % {"lock": lock}
    by = [_holder(one) for one in lock.holders[:MOST]]
    if lock.holding > MOST:
        by.append(gettext("%(count)d more") % {"count": lock.holding - MOST})
    facts = {"lock": lock, "by": "; ".join(by), "count": lock.holding, "limit": lock.limit}
    if lock.limit is not None:
        return gettext("%(count)d of %(limit)d permits of %(lock)s are held: %(by)s.") % facts
    return (
        ngettext("%(lock)s is held by %(by)s.", "%(lock)s is held by %(count)d: %(by)s.", len(by))
        % facts
    )


def _holder(one: Contender) -> str:
    if one.is_new:
        return f"{_who(one)}, {held(one)}"
    facts = {"who": _who(one), "duration": held(one)}
    if isinstance(one.participant, LeaseHolder) and one.participant.expires:
        facts["time"] = moment(localtime(one.participant.expires))
        return (
            gettext(
                "%(who)s, for %(duration)s, until %(time)s unless renewed (a lease outlives its "
                "process)"
            )
            % facts
        )
    return gettext("%(who)s, for %(duration)s") % facts


def _waited(lock: Lock) -> str:
    if not lock.waiting:
        return "" if lock.tasks else gettext("Nobody waits behind it.")
    text = ngettext(
        "%(count)d waits behind it, for %(duration)s: %(who)s.",
        "%(count)d wait behind it, the first for %(duration)s: %(who)s.",
        lock.waiting,
    )
    first = lock.waiters[0]
    return text % {
        "count": lock.waiting,
        "duration": seconds(first.seconds),
        "who": _who(first),
    }


def _crowd(lock: Lock) -> str:
    """Name the process and the work of more than half of many waiters, or at least the work."""
    people = [one.participant for one in lock.waiters]
    for names in (
        [str(replace(one, worker="")) for one in people],
        [one.label for one in people],
    ):
        for name, count in Counter(names).most_common(1):
            if name and count > max(MOST, lock.waiting / 2):
                facts = {"count": count, "who": printable(name)}
                return gettext("%(count)d of them: %(who)s.") % facts
    return ""


def _tasks(lock: Lock) -> str:
    if not lock.tasks:
        return ""
    return ngettext(
        "%(count)d Celery task waits for its turn.",
        "%(count)d Celery tasks wait for their turn.",
        lock.tasks,
    ) % {"count": lock.tasks}


def _waits(holders: Iterable[Contender], locks: Iterable[Lock]) -> Iterator[Link]:
    """Yield the waits of these holders, of the holders for which they wait, and so on."""
    by_owner = {one.owner: (lock, one) for lock in locks for one in lock.waiters if one.owner}
    pending = deque(holders)
    while pending:
        lock, waiter = by_owner.pop(pending.popleft().owner, (None, None))
        if lock and waiter and lock.holders:
            yield Link(lock=lock, waiter=waiter, holder=lock.holders[0])
            pending.extend(lock.holders)


def _wait(link: Link) -> str:
    text = gettext("%(waiter)s waits for %(lock)s, which %(holder)s holds")
    return text % {
        "waiter": _who(link.waiter),
        "lock": link.lock,
        "holder": _who(link.holder),
    }


def _who(one: Contender) -> str:
    """Return a participant in few words: its work tells more than its thread."""
    return who(brief(one))
