"""Makes loggers whose lines nobody can forge, since others choose paths, keys and labels."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from distlock.text import printable

#: The characters that a line shows of one argument: an error names several nodes.
_LONGEST: Final = 2000


class _Shown(str):
    """The text of an argument, also with ``%r``."""

    __slots__ = ("with_r",)
    with_r: str

    def __repr__(self) -> str:
        return self.with_r


def _shown(value: object) -> _Shown:
    shown = _Shown(printable(str(value), _LONGEST))
    shown.with_r = printable(repr(value), _LONGEST)
    return shown


class _Printable(logging.Filter):
    """Makes the arguments of a record printable: a newline in a path would begin a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                arg if isinstance(arg, int | float) else _shown(arg) for arg in record.args
            )
        return True


_printable = _Printable()


def safe(logger: logging.Logger, *filters: Callable[[logging.LogRecord], bool]) -> logging.Logger:
    """Make the arguments of a logger's records printable, and return the logger.

    :param filters: more filters for this logger; they see the arguments before these become text
    """
    for one in filters:
        logger.addFilter(one)
    logger.addFilter(_printable)
    return logger


logger = safe(logging.getLogger("distlock"))

#: How often an outage is logged again, in seconds.
REPEAT_SECONDS: Final = 60.0


class Outage:
    """Logs an outage of the servers: when it begins, once a minute, and when it is over."""

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
