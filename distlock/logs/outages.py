"""Logs an outage of ZooKeeper: when it begins, once a minute, and when it is over."""

from __future__ import annotations

import logging
import time
from typing import Final

from .loggers import safe

logger = safe(logging.getLogger("distlock"))

#: How often an outage is logged again, in seconds.
REPEAT_SECONDS: Final = 60.0


class Outage:
    """The times without a connection; used on the connection thread.

    :param hosts: the servers, as the lines name them
    """

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        #: When it began, and when it was logged last (`time.monotonic`); None while there is none.
        self._began_at: float | None = None
        self._logged_at = 0.0

    def note(self, reason: str) -> None:
        """Log that there is no connection, unless that was logged within the last minute."""
        now = time.monotonic()
        if self._began_at is None:
            self._began_at = self._logged_at = now
            logger.warning(
                "There is no connection to ZooKeeper at %s: %s. distlock keeps trying.",
                self._hosts,
                reason,
            )
        elif now - self._logged_at >= REPEAT_SECONDS:
            self._logged_at = now
            logger.warning(
                "There has been no connection to ZooKeeper at %s for %.0f s: %s.",
                self._hosts,
                now - self._began_at,
                reason,
            )

    def end(self) -> None:
        """Log that there is a connection again, if there was none."""
        if self._began_at is not None:
            logger.warning(
                "The connection to ZooKeeper at %s is back after %.1f s.",
                self._hosts,
                time.monotonic() - self._began_at,
            )
            self._began_at = None
