"""Tools for the embedded server that the processes of a user share."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.kit.helpers import alive, eventually

if TYPE_CHECKING:
    from pathlib import Path


def folder_in(temporary: Path) -> Path:
    """The folder of the server's files, where `temporary` is the value of ``TMPDIR``."""
    return temporary / f"distlock-{os.geteuid()}"


def end_in(folder: Path) -> None:
    """End the server, if one has started."""
    with suppress(OSError, IndexError, ValueError):
        kill(pid_in(folder), signal.SIGTERM)


def pid_in(folder: Path) -> int:
    """The process id of the server."""
    return int((folder / "embedded").read_text().split()[1])


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, number)
    eventually(lambda: not alive(pid))
