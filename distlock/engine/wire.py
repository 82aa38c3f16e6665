"""A TCP connection to a server on which every thread sends its own requests.

A request is in the kernel when `Wire.transmit` returns True, so the server carries it out even if
the process ends at once, unless the link is full or loses packets.

- *No thread waits for another.* A thread that finds the wire busy gets False, and leaves its
  request to the connection thread.
- *A send finishes, or the connection ends.* An exception (a soft time limit, Ctrl-C) may land in
  the middle of a send, and nobody knows then how much of it was sent. The next sender notices, and
  cuts the wire. The session reconnects, and finds out what became of each request.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from distlock.engine.kazoo import ConnectionLoss
from distlock.jute import REQUEST
from distlock.keys.limits import MAX_INT

if TYPE_CHECKING:
    from collections.abc import Callable

#: A request, where its outcome goes (None for nowhere), and its number.
Sent: TypeAlias = "tuple[Any, Any, int]"

#: How long a send may take on a connection that has been cut, in seconds.
_END_SECONDS: Final = 0.1

#: The numbers go on over reconnections, other than kazoo's: a server may send the reply to a
#: request of the connection before.
_numbers: Final = count()


def packed(request: Any) -> tuple[int, bytes]:
    """Return a new number for a request, and the request as bytes."""
    content = request.serialize()
    number = next(_numbers) % MAX_INT + 1
    return number, REQUEST.pack(len(content) + 8, number, request.type) + content


class Wire(socket.socket):
    """A connected TCP socket that does not block; it takes over the descriptor of another one."""

    def __init__(
        self,
        connected: socket.socket,
        pack: Callable[[Any], tuple[int, bytes]] = packed,
    ) -> None:
        family, kind, protocol = connected.family, connected.type, connected.proto
        super().__init__(family, kind, protocol, fileno=connected.detach())
        self.setblocking(False)
        self._pack = pack
        #: Held by the thread that sends.
        self.lock = threading.Lock()
        #: Requests that the server has not answered yet, in the order in which they were sent.
        self.unanswered: deque[Sent] = deque()
        #: The end of a message of which the kernel has taken the beginning. The connection thread
        #: sends it.
        self.rest = b""
        #: True during a send, and after one that was interrupted.
        self.unfinished = False
        #: Whether the connection thread has closed it.
        self.over = False
        #: When a request was last sent (`time.monotonic`).
        self.sent_at = 0.0

    def transmit(self, *calls: tuple[Any, Any]) -> bool:
        """Send requests from any thread; return False, with nothing done, if that must wait."""
        sent: list[Sent] = []
        message = b""
        for request, reply in calls:
            number, part = self._pack(request)
            sent.append((request, reply, number))
            message += part
        if not self.lock.acquire(blocking=False):
            return False
        try:
            if self.rest or self.over:
                return False
            if self.unfinished:
                self.cut()
                return False
            self.unfinished = True
            self.unanswered.extend(sent)
            try:
                self.rest = message[self.send(message) :]
            except BlockingIOError:
                self.rest = message
            except OSError:  # broken: the connection thread notices, too
                pass
            self.unfinished = False
            self.sent_at = time.monotonic()
        finally:
            self.lock.release()
        if self.over:  # since just now: whoever looks second finds what is unanswered
            self.fail_unanswered()  # type: ignore[unreachable]  # another thread sets it
        return True

    def cut(self) -> None:
        """End the connection; from any thread. The connection thread notices and reconnects."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection for good; on the connection thread.

        A thread that is in the middle of a send comes to its end first: its descriptor must not
        become another file's. After that time it is not in the kernel, but interrupted.
        """
        if self.over:
            return
        self.over = True
        self.cut()
        self.lock.acquire(timeout=_END_SECONDS)  # for good: nobody sends any more
        super().close()
        self.fail_unanswered()

    def fail_unanswered(self) -> None:
        """Report to all who wait for a reply that it is lost, once to each."""
        while self.unanswered:
            _, reply, _ = self.unanswered.popleft()
            if reply is not None:
                reply.set_exception(ConnectionLoss())
