"""The embedded ZooKeeper as a process of its own, for tests with several processes."""

from __future__ import annotations

import os
import select
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .guard import GuardedProcess
from .server import START_TIMEOUT, ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

_READY: Final = "ZooKeeper ready on "


@dataclass(frozen=True)
class EmbeddedProcess:
    """An embedded ZooKeeper that runs as a process."""

    #: The address for ``HOSTS``.
    hosts: str
    pid: int


@contextmanager
def embedded_process() -> Iterator[EmbeddedProcess]:
    """Run an empty embedded ZooKeeper for the block; it ends with this process however that ends.

    :raises ServerFailed: it did not start
    """
    owner = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix="distlock-embedded-"))
    log = folder / "embedded.log"
    command = [sys.executable, "-m", "distlock.embedded"]
    with GuardedProcess(command, output=log, cwd=Path.cwd(), folder=folder, piped=True) as process:
        try:
            readable, _, _ = select.select([process.stdout], [], [], START_TIMEOUT)
            said = process.stdout.readline() if readable else ""
            if not said.startswith(_READY):
                raise ServerFailed(f"The embedded ZooKeeper did not start.\n{log.read_text()}")
            yield EmbeddedProcess(said.removeprefix(_READY).strip(), process.pid)
        finally:
            if os.getpid() == owner:  # and this is no forked child that leaves the block
                process.kill()  # it keeps nothing that could be lost
                shutil.rmtree(folder)
