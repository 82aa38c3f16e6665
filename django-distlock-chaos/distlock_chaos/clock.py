"""A time of day for test servers that can be set while they run.

A file in a server's folder says how far its clock is ahead. The clock of elapsed time stays right:
as on a machine whose clock is set, nothing else changes.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Any, Final

from distlock_chaos.install import ServerNotInstalled, java

if TYPE_CHECKING:
    from pathlib import Path

#: The file. It holds 8 bytes: microseconds, little-endian.
_FILE: Final = "clock-ahead"

#: They load this library before the C library. (libfaketime does not start together with
#: jemalloc, which Debian's Redis uses.)
_LIBRARY: Final = """\
#define _GNU_LIBRARY
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

#: ZooKeeper reads its time of day in one class only. This one goes before it on the class path.
_TIME_JAVA: Final = """\
package org.apache.zookeeper.common;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Date;

public class Time {
    public static long currentElapsedTime() {
        return System.nanoTime() / 1000000;
    }

    public static long currentWallTime() {
        try {
            ByteBuffer file = ByteBuffer.wrap(Files.readAllBytes(Paths.get("%s")));
            long ahead = file.order(ByteOrder.LITTLE_ENDIAN).getLong() / 1000;
            return System.currentTimeMillis() + ahead;
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    public static Date elapsedTimeToDate(long elapsedTime) {
        return new Date(currentWallTime() + elapsedTime - currentElapsedTime());
    }
}
"""


def set_clock(folder: Path, ahead: float) -> None:
    """Let the clock of the server in `folder` be `ahead` seconds ahead of the machine's."""
    # In place: Redis has mapped the file.
    with (folder / _FILE).open("r+b" if (folder / _FILE).exists() else "wb") as file:
        file.write(struct.pack("<q", round(ahead * 1_000_000)))


def with_clock(folder: Path, command: list[Any]) -> list[Any]:
    """Return the command of a Redis or a PostgreSQL in `folder` whose clock `set_clock` sets.

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
        source.write_text(_LIBRARY)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        set_clock(folder, 0)
    return ["env", f"LD_PRELOAD={library}", f"CLOCK_AHEAD={folder / _FILE}", *command]


def compile_time(folder: Path) -> Path:
    """Compile ZooKeeper's class into `folder`, and return what goes first on the class path.

    Raises `ServerNotInstalled` without a Java compiler.
    """
    beside = java().resolve().with_name("javac")
    compiler = str(beside) if beside.exists() else shutil.which("javac")
    if compiler is None:
        raise ServerNotInstalled(
            "javac was not found: a clock that can be set needs a Java development kit. "
            "Install it with `apt-get install default-jdk-headless` or `brew install openjdk`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "Time.java"
    source.write_text(_TIME_JAVA % _FILE)
    subprocess.run([compiler, "-d", str(folder), str(source)], check=True, capture_output=True)
    return folder
