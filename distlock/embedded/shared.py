"""Finds the embedded server that all processes of a user share, and starts it if there is none.

Its files are in the folder ``distlock-UID`` of the temporary folder, which only the user may open:
``embedded`` has the address and the process id, and ``embedded.log`` what the server logs.

The server keeps ``embedded`` locked, with ``flock``, for as long as it lives. So an address counts
if the file is locked, and whoever gets the lock starts the server, which inherits it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from distlock.process import interpreter

#: The server ends when nobody has been connected for so long, in seconds.
IDLE_SECONDS: Final = 600.0
#: How long it may take to start, in seconds.
START_SECONDS: Final = 10.0
#: How often to look whether a server that another process starts is ready, in seconds.
_LOOK_SECONDS: Final = 0.02
_FILE: Final = "embedded"
#: The variable that tells the system where Python's libraries are.
_LIBRARIES: Final = "LD_LIBRARY_PATH"

#: Held while this process has the lock, which a child that is forked then would keep.
_no_fork = threading.RLock()
os.register_at_fork(
    before=_no_fork.acquire, after_in_parent=_no_fork.release, after_in_child=_no_fork.release
)


def address() -> str:
    """Return host and port of the server; start it if it does not run."""
    folder = _folder()
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with _no_fork:
            file = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if _lock(file):
                    _start(folder, file)
                found = os.pread(file, 100, 0).decode()
            finally:
                os.close(file)
        if found.endswith("\n"):
            return found.split()[0]
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError(f"The embedded server did not start in {START_SECONDS:g} s; see {folder}.")


def announce(file: int, hosts: str) -> None:
    """Write the address of this process's server to the locked file."""
    os.pwrite(file, f"{hosts} {os.getpid()}\n".encode(), 0)


def in_place(file: int) -> bool:
    """Return whether others can find the locked file; the server runs in its folder."""
    try:
        return os.path.samestat(os.fstat(file), Path(_FILE).lstat())
    except OSError:
        return False


def _folder() -> Path:
    """Return the folder of this user, made if it is missing."""
    folder = Path(tempfile.gettempdir(), f"distlock-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not private or found.st_uid != os.geteuid():
        raise PermissionError(
            f"{folder} is not a folder that is yours and that only you may open. Remove it, or "
            "set TMPDIR to another folder, for all processes."
        )
    return folder


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start(folder: Path, file: int) -> None:
    os.ftruncate(file, 0)
    log = folder / f"{_FILE}.log"
    command = [interpreter(), "-m", "distlock.embedded", "--idle", str(IDLE_SECONDS)]
    # Nothing that could hold a secret.
    environment = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    if _LIBRARIES in os.environ:
        environment[_LIBRARIES] = os.environ[_LIBRARIES]
    with log.open("wb") as output:
        try:
            subprocess.run(
                [*command, "--shared", str(file)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[file],
                start_new_session=True,  # away from the terminal's Ctrl-C
                timeout=START_SECONDS,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise ChildProcessError(
                f"The embedded server did not start: {error} See {log}."
            ) from error
