"""Measures the locks of all processes for Prometheus, as the lock servers know them.

`manage.py distlock metrics` has it. A site that serves metrics of its own may register a `Fleet`
in one of its processes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from django.conf import settings

from distlock.contrib import extra
from distlock.exceptions import LockUnavailable
from distlock.inspection.state import Lock, Snapshot
from distlock.inspection.tree import snapshot
from distlock.inspection.wait_graph import confirmed

with extra("prometheus-client"):
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

#: The most templates of an alias; the locks of the others count as `OTHER`.
MOST: Final = 100
OTHER: Final = "other"

#: With the label ``using``.
OF_ALIAS: Final = {
    "up": "1 if all locks were read in time, else 0; then the others count what was read.",
    "sessions": "Sessions that hold or wait for a lock.",
    "deadlocks": "Owners' circles that wait for each other.",
}
#: With the labels ``using`` and ``template``.
OF_TEMPLATE: Final = {
    "locks": "Keys that somebody holds or waits for, or whose limit was set.",
    "holders": "Holders; of a semaphore, the permits in use.",
    "waiters": "Waiters in a queue.",
    "tasks": "Celery tasks that wait for their turn outside the queue.",
    "longest_wait_seconds": "For how long the first of the waiters has waited.",
    "longest_hold_seconds": "For how long the first holder has held; 0 in its first seconds.",
    "permits": "Permits of semaphores whose limit is known, in use or not.",
    "permits_used": "Permits in use, of semaphores whose limit is known.",
}


class Fleet(Collector):
    """Reads the locks of all aliases at each scrape.

    The label ``template`` is that of the key, or the part of a key without one up to its first
    colon: ``stock:*``. With more than 100 of them, the locks of the rarest are ``other``.

    :param budget: seconds for an alias; what is not read by then is missing
    """

    def __init__(self, budget: float = 10.0) -> None:
        self._budget = budget

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of all aliases; of one that is away, only that it is.

        :raises ImproperlyConfigured: the settings are wrong
        """
        found = {
            name: GaugeMetricFamily(f"distlock_fleet_{name}", about, labels=labels)
            for labels, names in ((("using",), OF_ALIAS), (("using", "template"), OF_TEMPLATE))
            for name, about in names.items()
        }
        for using in getattr(settings, "DISTLOCK", {"default": {}}):
            try:
                seen = snapshot(using, depth=None, budget=self._budget)
                deadlocks = len(confirmed(seen, self._budget))
            except LockUnavailable:
                found["up"].add_metric((using,), 0)
                continue
            sessions = {
                one.participant.session_id for lock in seen.locks for one in lock.contenders
            }
            found["up"].add_metric((using,), not seen.cut)
            found["sessions"].add_metric((using,), len(sessions - {0}))
            found["deadlocks"].add_metric((using,), deadlocks)
            for template, locks in _by_template(seen).items():
                for name, value in _values(locks).items():
                    found[name].add_metric((using, template), value)
        yield from found.values()


def _values(locks: list[Lock]) -> dict[str, float]:
    limited = [lock for lock in locks if lock.limit is not None]
    return {
        "locks": len(locks),
        "holders": sum(lock.holding for lock in locks),
        "waiters": sum(lock.waiting for lock in locks),
        "tasks": sum(lock.tasks for lock in locks),
        "longest_wait_seconds": max(lock.longest_wait for lock in locks),
        "longest_hold_seconds": max(lock.held or 0 for lock in locks),
        "permits": sum(lock.limit or 0 for lock in limited),
        "permits_used": sum(lock.holding for lock in limited),
    }


def _by_template(seen: Snapshot) -> dict[str, list[Lock]]:
    named = [(_template(lock), lock) for lock in seen.locks]
    counts = Counter(name for name, _ in named)
    kept = set(sorted(counts, key=lambda name: (-counts[name], name))[:MOST])
    found = defaultdict(list)
    for name, lock in named:
        found[name if name in kept else OTHER].append(lock)
    return found


def _template(lock: Lock) -> str:
    templates: Iterable[str] = (one.participant.template for one in lock.contenders)
    head, colon, _ = str(lock).partition(":")
    return next(filter(None, templates), f"{head}:*" if colon else head)
