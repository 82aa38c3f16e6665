"""Where this machine keeps Java's Curator, and how its contender is compiled and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from distlock.testing.install import DEBIAN_JARS, ServerNotInstalled, java, zookeeper_jars

PACKAGES = ("libcurator-recipes-java", "default-jdk-headless")
SOURCE = Path(__file__).parent / "contenders" / "Contender.java"

# The JVM starts quickest so; the first two are what a contender needs, the rest is ZooKeeper's.
_JVM = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_JARS = ("curator-recipes", "curator-framework", "curator-client", "guava", "slf4j-nop")


class CuratorMissing(Exception):
    """Curator or a Java compiler was not found; the message says what to install."""


def command(folder: Path, *, install: bool = False) -> list[str]:
    """Compile the contender into `folder`, and return how to run it.

    :param install: get what is missing with apt-get, where that can be
    :raises CuratorMissing: it cannot be had
    """
    if install and (_compiler() is None or _missing_jars()):
        _install()
    compiler = _compiler()
    if compiler is None or _missing_jars():
        raise CuratorMissing(f"Type, as root: apt-get install {' '.join(PACKAGES)}")
    try:
        # The logger that ZooKeeper's server uses would complain of its missing configuration.
        server = [jar for jar in zookeeper_jars() if not jar.name.startswith(("slf4j-log", "log"))]
        program = java()
    except ServerNotInstalled as error:
        raise CuratorMissing(str(error)) from error
    path = os.pathsep.join(map(str, [folder, *_jars(), *server]))
    subprocess.run([compiler, "-cp", path, "-d", folder, SOURCE], check=True)
    return [str(program), *_JVM, "-cp", path, "Contender"]


def version() -> str:
    """Return the version that is installed; Debian has it in the name of one of two links."""
    jars = DEBIAN_JARS.glob("curator-recipes-*.jar")
    return next((jar.stem.removeprefix("curator-recipes-") for jar in jars), "")


def _jars() -> list[Path]:
    return [DEBIAN_JARS / f"{name}.jar" for name in _JARS]


def _missing_jars() -> list[Path]:
    return [jar for jar in _jars() if not jar.exists()]


def _compiler() -> str | None:
    return shutil.which("javac")


def _install() -> None:
    apt_get, sudo = shutil.which("apt-get"), shutil.which("sudo")
    root = os.geteuid() == 0
    if apt_get is None or not (root or sudo):
        return
    get = [
        *([] if root else ["sudo"]),
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        apt_get,
        "-q",
        "-y",
    ]
    subprocess.run([*get, "update"], check=False)
    subprocess.run([*get, "install", "--no-install-recommends", *PACKAGES], check=False)
