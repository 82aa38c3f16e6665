"""Counts for each key template and minute how long locks are waited for and held, and what fails.

Each process counts for itself in `Counts`, and its thread in `history` adds a minute to the
database when it is over, so that a killed process takes its last minute with it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from itertools import count, pairwise
from typing import Final, TypeAlias

from django.db import transaction
from django.db.models import F

from .models import LockMinute
from .signals import BUCKETS
from .text import printable

#: The minutes that are kept.
KEPT: Final = 25 * 60
#: The seconds after the end of a minute in which a slow thread may still count in it.
_GRACE: Final = 5.0

#: The minute since the epoch, the alias, the template, the kind and the bucket: see `LockMinute`.
Key: TypeAlias = tuple[int, str, str, str, int]


class Counts(dict[Key, "count[int]"]):
    """The counts of this process that are not written yet."""

    def add(self, using: str, template: str, kind: str, seconds: float) -> None:
        """Count a wait or a hold of so many seconds, or what went wrong, which takes none.

        Neither another thread nor a signal handler comes between the parts of one call in C, so
        this needs no lock.
        """
        key = int(time.time()) // 60, using, template, kind, bisect_left(BUCKETS, seconds)
        next(self.get(key) or self.setdefault(key, count()))

    def take(self, *, unfinished: bool) -> dict[Key, int]:
        """Remove and return the counts of the minutes that are over, in order.

        :param unfinished: also those of this minute
        """
        before = (time.time() - _GRACE) // 60
        return {key: next(self.pop(key)) for key in sorted(self) if unfinished or key[0] < before}


def write(counts: Mapping[Key, int], database: str) -> None:
    """Add to the counts in the database, and delete those that are too old.

    :param counts: in order, so that two processes never wait for each other
    """
    rows = LockMinute.objects.using(database)
    added = [(_row(*key), number) for key, number in counts.items()]
    # On its own: MySQL keeps a shared lock of each row that was there already until the COMMIT.
    rows.bulk_create([row for row, _ in added], ignore_conflicts=True)
    with transaction.atomic(using=database):
        for row, number in added:
            same = {name: getattr(row, name) for name in LockMinute.UNIQUE}
            rows.filter(**same).update(count=F("count") + number)
    rows.filter(minute__lt=time.time() // 60 - KEPT).delete()


def _row(minute: int, using: str, template: str, kind: str, bucket: int) -> LockMinute:
    template = printable(template, LockMinute.LONGEST - 1)  # without the mark of the cut
    return LockMinute(minute=minute, using=using, template=template, kind=kind, bucket=bucket)


def quantile(part: float, histogram: Mapping[int, int]) -> float:
    """Return the value below which a part of a histogram is, as Prometheus estimates it.

    :param part: from 0 to 1
    :param histogram: the counts by bucket, not empty
    """
    rank = part * sum(histogram.values())
    for bucket in sorted(histogram):
        rank -= histogram[bucket]
        if rank <= 0:
            break
    low, high = [*pairwise((0.0, *BUCKETS, BUCKETS[-1]))][bucket]
    return high + (high - low) * rank / histogram[bucket]
