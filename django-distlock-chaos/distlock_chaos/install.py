"""Where this machine keeps Java and ZooKeeper, and what to type when it has neither."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

DEBIAN_JARS = Path("/usr/share/java")
HOMEBREW = (
    Path("/opt/homebrew/opt"),
    Path("/usr/local/opt"),
    Path("/home/linuxbrew/.linuxbrew/opt"),
)

HOW_TO_INSTALL = (
    "Install it with `apt-get install zookeeper` (Debian, Ubuntu) or `brew install zookeeper` "
    "(macOS), or set ZOOKEEPER_HOME to an unpacked Apache ZooKeeper."
)


class ServerError(RuntimeError):
    """A server on this machine could not be run; the subclasses say why."""


class ServerNotInstalled(ServerError):
    """A program was not found on this machine. The message says what to type."""


class WrongHome(ServerNotInstalled):
    """``JAVA_HOME`` or ``ZOOKEEPER_HOME`` names a folder without Java or ZooKeeper."""


def java() -> Path:
    """The `java` program: of `JAVA_HOME`, else of Homebrew, else on `PATH`.

    Raises `ServerNotInstalled`, and `WrongHome` when `JAVA_HOME` names a folder without one: a
    wrong setting is reported, never passed over.
    """
    if home := os.environ.get("JAVA_HOME"):
        program = Path(home, "bin/java")
        if not os.access(program, os.X_OK):
            raise WrongHome(
                f"JAVA_HOME is {home}, but there is no bin/java in it. "
                "Correct JAVA_HOME or unset it."
            )
        return program
    # Before PATH: on macOS /usr/bin/java is there without any Java behind it.
    homebrew = [str(prefix / "openjdk/bin/java") for prefix in HOMEBREW]
    found = next(filter(None, map(shutil.which, [*homebrew, "java"])), None)
    if found is None:
        raise ServerNotInstalled(f"Java was not found: ZooKeeper needs it. {HOW_TO_INSTALL}")
    return Path(found)


def zookeeper_jars() -> list[Path]:
    """The class path of the server: of `ZOOKEEPER_HOME`, else of Debian, else of Homebrew.

    Raises `ServerNotInstalled`, and `WrongHome` when `ZOOKEEPER_HOME` names a folder without it.
    """
    home = os.environ.get("ZOOKEEPER_HOME")
    server = DEBIAN_JARS / "zookeeper.jar"
    if not home and server.exists():
        # The manifest pulls the rest, except a logger and parts of Netty (for TLS).
        loggers = [DEBIAN_JARS / "slf4j-log4j12.jar", DEBIAN_JARS / "log4j-1.2.jar"]
        return [server, *loggers, *sorted(DEBIAN_JARS.glob("netty-*.jar"))]
    for folder in [Path(home)] if home else [one / "zookeeper/libexec" for one in HOMEBREW]:
        if any(folder.glob("lib/zookeeper*.jar")):
            return sorted(folder.glob("lib/*.jar"))
    if home:
        raise WrongHome(
            f"ZOOKEEPER_HOME is {home}, but there is no lib/zookeeper*.jar in it. "
            "Correct ZOOKEEPER_HOME or unset it."
        )
    raise ServerNotInstalled(f"ZooKeeper was not found. {HOW_TO_INSTALL}")
