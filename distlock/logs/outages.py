"""Logs an outage of the servers: when it begins, once a minute, and when it is over."""

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

    :param servers: as the lines name them, such as ``ZooKeeper at zk1:2181``
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        #: When it began, and when it was logged last (`time.monotonic`); None while there is none.
        self._began_at: float | None = None
        self._logged_at = 0.0

    def note(self, reason: str) -> None:
        """Log that there is no connection, unless that was logged within the last minute."""
        now = time.monotonic()
        if self._began_at is None:
            self._began_at = self._logged_at = now
            logger.warning(
                "There is no connection to %s: %s. distlock keeps trying.", self._servers, reason
            )
        elif now - self._logged_at >= REPEAT_SECONDS:
            self._logged_at = now
            lasted, servers = now - self._began_at, self._servers
            logger.warning(
                "There has been no connection to %s for %.0f s: %s.", servers, lasted, reason
            )

    def end(self) -> None:
        """Log that there is a connection again, if there was none."""
        if self._began_at is not None:
            lasted = time.monotonic() - self._began_at
            logger.warning("The connection to %s is back after %.1f s.", self._servers, lasted)
            self._began_at = None
