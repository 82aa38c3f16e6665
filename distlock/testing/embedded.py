"""The embedded ZooKeeper as a process of its own, for tests with several processes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Final, cast

_READY: Final = "ZooKeeper ready on "


@dataclass(frozen=True)
class EmbeddedProcess:
    """An embedded ZooKeeper that runs as a process."""

    #: The address for ``HOSTS``.
    hosts: str
    pid: int


@contextmanager
def embedded_process() -> Iterator[EmbeddedProcess]:
    """Run an empty embedded ZooKeeper for the block; it ends with this process in any case."""
    owner = os.getpid()
    command = [sys.executable, "-m", "distlock.embedded", "--parent", str(owner)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # away from the terminal's Ctrl-C
        )
        stdout = cast("IO[str]", process.stdout)
        try:
            readable, _, _ = select.select([stdout], [], [], 30.0)  # seconds
            said = stdout.readline() if readable else ""
            if not said.startswith(_READY):
                log.seek(0)
                raise ChildProcessError(f"The embedded server did not start.\n{log.read()}")
            yield EmbeddedProcess(said.removeprefix(_READY).strip(), process.pid)
        finally:
            stdout.close()
            if os.getpid() == owner:  # and this is no forked child that leaves the block
                process.kill()  # it keeps nothing that could be lost
                process.wait()
