"""Takes the lock that a site moves away from, around one of ours: the setting ``BESIDE``.

As long as some processes of a site take only the old lock, and others only ours, those that take
both exclude all. See docs/how-to/move.md.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from django.utils.module_loading import import_string

from distlock.exceptions import LockBusy

if TYPE_CHECKING:
    from distlock.engine.calls import Steps
    from distlock.engine.protocol import Configuration

#: The seconds between two tries: nothing tells when an old lock is free. redis-py's pause.
TRY_SECONDS: Final = 0.1


class OldLock:
    """The old lock of a key, for one acquire of ours.

    :param conf: its ``BESIDE`` names the function that returns the old lock
    """

    def __init__(self, conf: Configuration, key: str) -> None:
        self._conf = conf
        self._key = key
        self._lock: Any = import_string(conf.beside or "")(key)
        #: Whether it is held: None while nobody knows.
        self._held: bool | None = False

    def take(self, limit: float | None) -> Steps[float | None]:
        """Take the lock, and return the rest of the time; do nothing if the key has none.

        :param limit: the seconds to wait, None for ever
        :raises LockBusy: it is busy
        :raises TypeError: it does not say at once whether it is held, as those of asyncio
        """
        started = time.monotonic()
        rest = limit
        while self._lock is not None:
            self._held = None
            held = self._lock.acquire(blocking=False)
            self._held = held is True
            if not isinstance(held, bool):
                raise TypeError(
                    f"{self._lock!r:.80}.acquire(blocking=False) returned {held!r:.80}. "
                    f"{self._conf.beside}() must return a lock whose acquire() returns True or "
                    "False: in async code, too, a synchronous one."
                )
            waited = time.monotonic() - started
            rest = None if limit is None else max(limit - waited, 0.0)
            if held:
                break
            if rest == 0:
                raise LockBusy(
                    f"The old lock beside {self._key!r} is busy after {waited:.1f} s. Try again "
                    "later, or wait longer with timeout=.",
                    key=self._key,
                    waited=waited,
                    retry_after=self._conf.retry_after,
                    using=self._conf.alias,
                )
            yield TRY_SECONDS if rest is None else min(TRY_SECONDS, rest)
        return rest

    def release(self) -> Exception | None:
        """Release the lock; return its error, or the exception that has landed in its release.

        Any number of calls are fine.
        """
        error = None
        held, self._held = self._held, None  # repeated after an interruption, it tells nothing
        try:
            if held is not False:
                self._lock.release()
        except Exception as failure:  # noqa: BLE001 - any lock's own
            error = failure if held else None  # it may never have been taken
            with suppress(Exception):  # the first call may have been interrupted before its end
                self._lock.release()
        self._held = False
        return error
