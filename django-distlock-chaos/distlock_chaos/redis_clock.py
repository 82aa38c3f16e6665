"""A wall clock for a Redis test server that can be set while it runs.

The library below is loaded before the C library, and adds what a file says to the time of day. The
monotonic clock stays right: as on a machine whose clock is set, nothing else changes.
(libfaketime does not start together with jemalloc, which Debian's Redis uses.)
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Final

from distlock.testing.install import ServerNotInstalled

if TYPE_CHECKING:
    from pathlib import Path

#: The file in a server's folder that says how far its clock is ahead, in microseconds.
_FILE: Final = "clock-ahead"

_SOURCE: Final = """\
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead;

__attribute__((constructor)) static void begin(void) {
    ahead = mmap(0, 8, PROT_READ, MAP_SHARED, open(getenv("CLOCK_AHEAD"), O_RDONLY), 0);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int error = syscall(SYS_clock_gettime, id, now);
    if (!error && id == CLOCK_REALTIME && ahead) {
        long long sum = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + *ahead;
        now->tv_sec = sum / 1000000, now->tv_nsec = sum % 1000000 * 1000;
    }
    return error;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    int error = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec, now->tv_usec = found.tv_nsec / 1000;
    return error;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
"""


def with_clock(folder: Path, command: list[str]) -> list[str]:
    """Return the command of a server in `folder` whose clock `set_clock` sets.

    Raises `ServerNotInstalled` without a C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise ServerNotInstalled(
            "cc was not found: a clock that can be set needs a C compiler. "
            "Install it with `apt-get install gcc libc6-dev`."
        )
    source, library = folder / "clock.c", folder / "clock.so"
    if not library.exists():
        source.write_text(_SOURCE)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        set_clock(folder, 0)
    return ["env", f"LD_PRELOAD={library}", f"CLOCK_AHEAD={folder / _FILE}", *command]


def set_clock(folder: Path, ahead: float) -> None:
    """Let the clock of the server in `folder` be `ahead` seconds ahead of the machine's."""
    # In place: the server has mapped the file.
    with (folder / _FILE).open("r+b" if (folder / _FILE).exists() else "wb") as file:
        file.write(struct.pack("q", round(ahead * 1_000_000)))
