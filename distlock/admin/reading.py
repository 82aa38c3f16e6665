"""Reads the data for one request of the admin page, within a budget of seconds."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured

from distlock.exceptions import LockUnavailable
from distlock.text import printable

from .wait_graph import Circles, circles

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.inspection.state import Snapshot

#: The seconds that a page may take for its reads, and the seconds of them for the locks.
BUDGET: Final = 3.0
LOCKS_BUDGET: Final = 1.8
#: The seconds after which the page refreshes, and the least multiple of the last answer's time, so
#: that a large tree is not read without a break.
REFRESH_SECONDS: Final = 2.0
REFRESH_TIMES: Final = 4


@dataclass(kw_only=True)
class Reading:
    """The data of one request, as far as it could be read in time.

    :ivar trouble: the reason why the server could not be read, empty if it could
    :ivar misconfigured: whether the settings are the reason
    """

    using: str
    started: float = field(default_factory=time.monotonic)
    trouble: str = ""
    misconfigured: bool = False
    circles: Circles | None = None

    @property
    def left(self) -> float:
        """The seconds left."""
        return max(self.started + BUDGET - time.monotonic(), 0)

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
        """Look for deadlocks in the time left."""
        if not self.trouble:
            with suppress(LockUnavailable):  # the locks were read: only the time was too short
                self.circles = circles(self.using, self.left - 0.2, seen)
