"""Asks the servers over a client of one's own, and waits for the outcomes."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .errors import TimeUp
from .hosts import client_of
from .reply import Reply

if TYPE_CHECKING:
    from .protocol import Configuration


class Asking:
    """A client whose outcomes are waited for, for so many `seconds` in all."""

    def __init__(self, conf: Configuration, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self.connected = threading.Event()
        self.client = client_of(conf, self.changed)
        self.client.connect()

    def changed(self, connected: bool, session_id: int) -> None:
        """Take note of a connection that has come or gone; on the connection thread."""
        (self.connected.set if connected else self.connected.clear)()

    @property
    def left(self) -> float:
        """The seconds left."""
        return max(self.deadline - time.monotonic(), 0.0)

    def outcomes(self, *requests: Any) -> list[Any]:
        """Return the outcomes of requests that are sent together: values, and errors as they are.

        One that has none in time is a `TimeUp`.
        """
        found: dict[int, Any] = {}
        told = threading.Event()

        def done(number: int, value: Any, error: BaseException | None) -> None:
            found[number] = value if error is None else error
            if len(found) == len(requests):
                told.set()

        if requests and self.connected.wait(self.left):
            for number, request in enumerate(requests):
                reply = Reply(partial(done, number), None, lambda _: None, 0)
                self.client.submit((request, reply))
            told.wait(self.left)
        return [found.get(number, TimeUp()) for number in range(len(requests))]

    def close(self) -> None:
        """End the session."""
        self.client.say_goodbye(1.0)
