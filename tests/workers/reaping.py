"""Tools of the tests of the session reaper: finding it, and what the system shows of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def reaper_of(pid: int) -> int:
    """Return the process id of the session reaper that a process has started.

    Both write to one standard error, which no other process of the machine has, and the reaper
    leads a session of its own or is forked from a leader that has ended.
    """
    (reaper,) = (one for one in _beside(pid) if os.getsid(one) != os.getsid(pid))
    return reaper


def _beside(pid: int) -> list[int]:
    """Return the processes with the standard error of `pid`."""
    found = []
    error = Path(f"/proc/{pid}/fd/2").readlink()
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if (one / "fd/2").readlink() == error:
                found.append(int(one.name))
    return found
