"""Takes the outcome of one request to where it is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .guard import report_bug

#: Called once with (value, None) or (None, error), on the connection thread.
Done = Callable[[Any, BaseException | None], None]


def ignore(value: Any, error: BaseException | None) -> None:
    """Take an outcome that changes nothing: a `Done`."""


class Reply:
    """Where the outcome of one request goes; stands in for kazoo's ``AsyncResult``.

    kazoo may set one twice, and loses those that are queued in the instant in which a session ends:
    `Session` fails these itself, and a value that comes later still goes to `orphan`.
    """

    __slots__ = ("_done", "_orphan", "_settled", "session_id")

    def __init__(
        self,
        done: Done,
        orphan: Callable[[Any], None] | None,
        settled: Callable[[Reply], None],
        session_id: int,
    ) -> None:
        self._done: Done | None = done
        self._orphan = orphan
        self._settled = settled
        #: The session in which the request was sent.
        self.session_id = session_id

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Take the server's answer, or the news that there will be none."""
        done, self._done = self._done, None
        self._settled(self)
        try:
            if done is not None:
                done(value, error)
            elif error is None and self._orphan is not None:
                self._orphan(value)
        except Exception as bug:  # noqa: BLE001 - is logged
            report_bug(bug)

    def set_exception(self, error: BaseException) -> None:
        """Take the news that there will be no answer; kazoo calls it so."""
        self.settle(None, error)
