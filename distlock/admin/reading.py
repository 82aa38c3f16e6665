"""Reads the data for one request of the admin page, within a budget of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from distlock.conf import configuration
from distlock.exceptions import LockUnavailable
from distlock.inspection import wait_graph
from distlock.inspection.state import Snapshot
from distlock.inspection.tree import snapshot
from distlock.inspection.wait_graph import Cycle
from distlock.text import printable

#: The seconds that a page may take for its reads, and the seconds of them for the locks.
BUDGET: Final = 3.0
LOCKS_BUDGET: Final = 1.8
#: The seconds after which the page refreshes, and the least multiple of the last answer's time, so
#: that a large tree is not read without a break.
REFRESH_SECONDS: Final = 2.0
REFRESH_TIMES: Final = 4


@dataclass(kw_only=True)
class Reading:
    """The data of one request, as far as it could be read in time."""

    using: str
    started: float = field(default_factory=time.monotonic)
    #: The reason why the server could not be read, and whether it is the settings.
    trouble: str = ""
    misconfigured: bool = False
    #: The deadlocks, None if there was no time to look for them, and whether all keys were checked.
    cycles: list[Cycle] | None = None
    whole: bool = True
    #: The setting ``DEADLOCK_AFTER``.
    after: float | None = None

    @property
    def interval(self) -> int:
        """The milliseconds after which to read again."""
        # The time went on a timeout, not on a large tree.
        took = 0 if self.trouble else time.monotonic() - self.started
        return int(max(REFRESH_SECONDS, REFRESH_TIMES * took) * 1000)

    def attempt(self, read: Callable[[], Any]) -> Any:
        """Return the result of `read`, or None if it fails: then `trouble` has the reason."""
        try:
            return read()
        except LockUnavailable as error:
            self.trouble = self.trouble or printable(str(error))
        except ImproperlyConfigured as error:
            self.trouble, self.misconfigured = printable(str(error)), True
        return None

    def look_around(self, seen: Snapshot | None = None) -> None:
        """Look for deadlocks in the time left, among all locks if the caller has `seen` them."""
        if self.trouble:
            return
        left = self.started + BUDGET - time.monotonic()
        each = max(left - 0.2, 0.3) / 3
        with suppress(LockUnavailable):  # the locks were read: only the time was too short
            seen = seen or snapshot(self.using, depth=None, budget=each)
            # Nodes read one after the other may show a cycle that never was: look again.
            found = wait_graph.cycles(seen.locks) and wait_graph.deadlocks(self.using, budget=each)
            self.cycles, self.whole = found, not seen.cut
            self.after = configuration(self.using).deadlock_after
