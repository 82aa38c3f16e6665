"""Knows how many permits a semaphore has, by the code and by changes at run time.

ZooKeeper keeps no limit: Curator leaves it to convention, and so everybody who uses one path must
use one number. We write ours into the data of the `leases` node, which Curator ignores, so that
peers can tell a mistake, and so that a limit which is set at run time reaches them all.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from distlock.logs.loggers import safe

logger = safe(logging.getLogger("distlock"))

#: The differences that were logged, each once.
_warned: set[tuple[str, int, int]] = set()
_WARNED_AT_MOST: Final = 1000


class Limit:
    """The limit of one semaphore as this process knows it.

    :ivar own: the limit in the code
    :ivar told: the limit set at run time, as far as known; it overrides `own`
    :param fixed: whether nobody can change it: a mutex has one permit
    """

    def __init__(self, key: str, own: int, *, fixed: bool = False) -> None:
        self.key = key
        self.own = whole(own, "limit")
        self.told: int | None = None
        self._fixed = fixed

    @property
    def now(self) -> int:
        """The number of permits."""
        return self.own if self.told is None else self.told

    @property
    def announcement(self) -> bytes:
        """The data for peers: the limit in our code."""
        return _data(self.own)

    def read(self, data: bytes) -> bool:
        """Read the data of a peer, and return whether to write our announcement over it.

        If the peers' code has another limit, ours stays, with one warning. Ours is then written, so
        that they warn, too, and so that the limit of the last deployment remains.
        """
        written, told = limit_in(data)
        self.told = written if told and not self._fixed else None
        if written is None:
            return True
        if written == self.own or self.told is not None or not self._is_news(written):
            return False
        logger.warning(
            "The semaphore %r has a limit of %d here and of %d for its peers. Each goes by its "
            "own, so the larger of the two decides how many may hold. Use one limit everywhere.",
            self.key,
            self.own,
            written,
            extra={"key": self.key},
        )
        return not told

    def refusal(self, wanted: int) -> ValueError:
        """Return the error for a caller that wants more permits than the limit."""
        return ValueError(
            f"{wanted} permits of {self.key!r} can never be had: there are {self.now}. Ask for "
            "fewer, or raise the limit."
        )

    def _is_news(self, written: int) -> bool:
        """Return whether this process has not logged this difference yet."""
        difference = self.key, self.own, written
        if difference in _warned:
            return False
        if len(_warned) >= _WARNED_AT_MOST:
            _warned.clear()
        _warned.add(difference)
        return True


def setting(limit: int) -> bytes:
    """Return the data for a limit that is set at run time."""
    return _data(limit, set=True)


def whole(value: Any, name: str) -> int:
    """Return a checked number of permits.

    :raises TypeError: not an int
    :raises ValueError: less than one
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number of permits, not {value!r:.80}.")
    if value < 1:
        raise ValueError(f"{name} cannot be {value}: a semaphore has one permit or more.")
    return value


def _data(limit: int, **more: bool) -> bytes:
    return json.dumps({"v": 1, "limit": limit, **more}, separators=(",", ":")).encode()


def limit_in(data: bytes) -> tuple[int | None, bool]:
    """Return the limit in a node's data, or None, and whether somebody has set it at run time.

    The data may be anything.
    """
    try:
        said = json.loads(data[:1000])
        return whole(said["limit"], "limit"), said.get("set") is True
    except (ValueError, TypeError, KeyError, RecursionError):
        return None, False
