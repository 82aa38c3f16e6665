"""What one request of the admin page reads, all of it within its time, and why not all."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured

from distlock.conf import configuration
from distlock.exceptions import LockUnavailable
from distlock.keys.znodes import printable

from .drawing import Drawing, draw
from .session_panel import Panel, ask_members, panel
from .wait_graph import Circles, circles

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.inspection.snapshot import Snapshot

#: How long a page may take to read what it shows, in seconds, and how much of it the locks may.
BUDGET: Final = 3.0
LOCKS_BUDGET: Final = 1.8
#: How often the page asks for what has changed, in seconds; and how many times as long as the
#: answer took, so that a great tree is not read without a break.
REFRESH_SECONDS: Final = 2.0
REFRESH_TIMES: Final = 4


@dataclass(kw_only=True)
class Reading:
    """What one request has read, within its time, and why not all.

    :ivar trouble: why nothing could be read, empty where it could
    :ivar misconfigured: whether that is the fault of the settings
    """

    using: str
    started: float = field(default_factory=time.monotonic)
    trouble: str = ""
    misconfigured: bool = False
    circles: Circles | None = None
    panel: Panel | None = None

    @property
    def left(self) -> float:
        """How many seconds are left."""
        return max(self.started + BUDGET - time.monotonic(), 0)

    @property
    def interval(self) -> int:
        """After how many milliseconds to read again."""
        # That there was no answer took long, and not a great tree.
        took = 0 if self.trouble else time.monotonic() - self.started
        return int(max(REFRESH_SECONDS, REFRESH_TIMES * took) * 1000)

    def attempt(self, read: Callable[[], Any]) -> Any:
        """Return what `read` returns, None where it cannot: then `trouble` tells why."""
        try:
            return read()
        except LockUnavailable as error:
            self.trouble = self.trouble or printable(str(error))
        except ImproperlyConfigured as error:
            self.trouble, self.misconfigured = printable(str(error)), True
        return None

    def begin(self) -> None:
        """Ask the servers, so that they have answered by the time when the locks are read."""
        self.attempt(lambda: ask_members(configuration(self.using)))

    def look_around(self, seen: Snapshot | None = None) -> None:
        """Look for deadlocks, and at the session and its servers, in the time that is left."""
        if not self.trouble:
            with suppress(LockUnavailable):  # the locks were read: only the time was too short
                self.circles = circles(self.using, self.left - 0.2, seen)
        if not self.misconfigured:
            self.panel = self.attempt(lambda: panel(self.using, self.started + BUDGET))

    def drawing(self, lock: str | None = None) -> Drawing | None:
        """Return who waits for whom as a drawing; None where that was not looked for.

        :param lock: the `Lock.name` of the one that it is to hang together with
        """
        if self.circles is None:
            return None
        return draw(self.circles.links, self.circles.cycles, lock=lock)
