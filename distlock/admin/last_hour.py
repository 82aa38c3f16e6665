"""Shows where a site has waited lately: by template from the counts, by key from the history."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.db import DatabaseError, router, transaction
from django.db.models import Count, F, Max, Sum
from django.utils.timezone import make_naive
from django.utils.translation import gettext_lazy as _

from distlock.conf import configuration
from distlock.minutes import quantile
from distlock.models import LockEvent, LockMinute
from distlock.signals import BUCKETS

from .history import address

#: The spans of time to choose from, in minutes, with the minutes of a bar.
SPANS: Final = {15: (_("15 minutes"), 1), 60: (_("1 hour"), 1), 1440: (_("24 hours"), 30)}
#: The most templates, and the most keys.
SHOWN: Final = 5
#: The shortest wait in seconds that tells which keys are slow.
SHORTEST: Final = 0.1
#: The seconds for which what was read is shown again.
_FRESH: Final = 15
#: The height of the bars: one for each bucket, so the scale is about logarithmic.
_HEIGHT: Final = len(BUCKETS) + 1


def last_hour(using: str, span: str) -> dict[str, Any]:
    """Return what the page shows of an alias.

    :param span: one of `SPANS`, or else an hour is shown
    """
    chosen = int(span) if span in map(str, SPANS) else 60
    if not configuration(using).history:
        return {"off": True}
    try:
        found = _read(using, chosen, int(time.time()) // _FRESH)
    except DatabaseError as error:
        return {"trouble": error}
    return {**found, "spans": [(one, name, one == chosen) for one, (name, _) in SPANS.items()]}


@lru_cache(maxsize=16)
def _read(using: str, span: int, _moment: int) -> dict[str, Any]:
    now, width = int(time.time()) // 60, SPANS[span][1]
    first = (now - span) // width * width
    counts: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    bars: dict[str, dict[int, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    database = router.db_for_read(LockMinute)
    rows = LockMinute.objects.using(database).filter(using=using, minute__gte=first, count__gt=0)
    rows = rows.annotate(bar=F("minute") - F("minute") % width)
    fields = rows.values_list("template", "kind", "bucket", "bar")
    with transaction.atomic(using=database):  # an error does not end the request's transaction
        for name, kind, bucket, bar, number in fields.annotate(Sum("count")):
            counts[name][kind][bucket] += number
            if kind == "wait":
                bars[name][bar][bucket] += number
    found = [_template(name, counts[name], bars[name], first, width) for name in bars]
    found.sort(key=lambda one: (-one["wait"], -one["ended"]))
    failing = sorted(found, key=lambda one: -sum(number for _, number in one["failures"]))
    return {
        "templates": found[:SHOWN],
        "failing": [one for one in failing[:SHOWN] if one["failures"]],
        "keys": _slow_keys(using, first),
        "length": -(-(now - first) // width),
        "height": _HEIGHT,
    }


def _template(
    name: str,
    counts: Mapping[str, Counter[int]],
    bars: Mapping[int, Counter[int]],
    first: int,
    width: int,
) -> dict[str, Any]:
    """Return a key template in a span of time; without a name, all locks that have none.

    `wait` is when 95 % of the acquires had ended, with the lock or without, and `hold` the median,
    in seconds. `bars` is the ``d`` of an SVG path.
    """
    waits = {bar: quantile(0.95, bars[bar]) for bar in sorted(bars)}
    peak = max(waits, key=lambda bar: waits[bar])
    return {
        "name": name,
        "beginning": name.partition("<")[0],
        "ended": counts["wait"].total(),
        "wait": quantile(0.95, counts["wait"]),
        "hold": quantile(0.5, counts["hold"]) if "hold" in counts else None,
        "peak": (waits[peak], _time(peak)),
        "bars": "".join(
            f"M{(bar - first) // width}.5 {_HEIGHT}v-{1 + bisect_left(BUCKETS, wait)}"
            for bar, wait in waits.items()
        ),
        "failures": [(one, counts[one].total()) for one in LockEvent.Kind if one in counts],
    }


def _slow_keys(using: str, first: int) -> list[dict[str, Any]]:
    """Return the keys that were waited for longest in all, as far as the history has them."""
    events = LockEvent.objects.filter(using=using, at__gte=_time(first), waited__gte=SHORTEST)
    keys = events.values("name").annotate(
        key=Max("key"), total=Sum("waited"), longest=Max("waited"), events=Count("id")
    )
    slow = keys.order_by("-total")[:SHOWN]
    return [{**one, "search": address(using, one["name"])} for one in slow]


def _time(minute: int) -> datetime:
    at = datetime.fromtimestamp(60 * minute, timezone.utc)
    return at if settings.USE_TZ else make_naive(at)
