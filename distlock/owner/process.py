"""Identifies this process, so that a forked child differs from its parent."""

from __future__ import annotations

import os
import socket


class Process:
    """One process, compared by identity, which is cheaper than asking the system for the pid."""

    __slots__ = ("host", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.host = socket.gethostname()


#: The current process. Read it as ``process.this``: a forked child gets its own.
this = Process()


def _begin() -> None:
    global this  # noqa: PLW0603 - one per process
    this = Process()


os.register_at_fork(after_in_child=_begin)
