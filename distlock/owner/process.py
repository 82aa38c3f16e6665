"""What a process is for as long as it lives, and a forked child is no more."""

from __future__ import annotations

import os
import socket


class Process:
    """One process. Compared by identity, which costs less than to ask the system for the pid."""

    __slots__ = ("host", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.host = socket.gethostname()


#: This one; look at it as ``process.this``, since a forked child gets its own.
this = Process()


def _begin() -> None:
    global this  # noqa: PLW0603 - one per process
    this = Process()


os.register_at_fork(after_in_child=_begin)
