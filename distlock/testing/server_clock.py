"""A wall clock for test servers that can be set while they run.

ZooKeeper reads its time of day in one place, the class ``org.apache.zookeeper.common.Time``. The
class below takes its place and adds what a file says. Sessions and elections go by the elapsed
time, which stays right: as on a machine whose clock is set, nothing else changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from distlock.testing.install import ServerNotInstalled, java

#: The file in a server's folder that says how far its clock is ahead, in milliseconds.
FILE: Final = "clock-ahead"

_TIME_JAVA: Final = """\
package org.apache.zookeeper.common;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Date;

public class Time {
    private static final Path AHEAD = Paths.get("%s");

    public static long currentElapsedTime() {
        return System.nanoTime() / 1000000;
    }

    public static long currentWallTime() {
        try {
            String ahead = new String(Files.readAllBytes(AHEAD));
            return System.currentTimeMillis() + Long.parseLong(ahead);
        } catch (NoSuchFileException notSet) {
            return System.currentTimeMillis();
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    public static Date elapsedTimeToDate(long elapsedTime) {
        return new Date(currentWallTime() + elapsedTime - currentElapsedTime());
    }
}
"""


def compile_clock(folder: Path) -> Path:
    """Compile the class into `folder`, and return what goes first on the class path.

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
    source.write_text(_TIME_JAVA % FILE)
    subprocess.run([compiler, "-d", str(folder), str(source)], check=True, capture_output=True)
    return folder


def set_clock(folder: Path, ahead: float) -> None:
    """Let the clock of the server in `folder` be `ahead` seconds ahead of the machine's."""
    new = folder / f"{FILE}-new"
    new.write_text(str(round(ahead * 1000)))
    os.replace(new, folder / FILE)  # noqa: PTH105 - at once, so that no server reads half of it
