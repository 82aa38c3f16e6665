"""Where this machine keeps Java's Curator, and how a program that uses it is compiled and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from distlock.testing.install import DEBIAN_JARS, ServerNotInstalled, java, zookeeper_jars

CONTENDER = Path(__file__).parent / "contenders" / "Contender.java"

# The JVM starts quickest so.
_JVM = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_JARS = ("curator-recipes", "curator-framework", "curator-client", "guava", "slf4j-nop")


class CuratorMissing(Exception):
    """Curator or a Java compiler was not found; the message says what to install."""


def command(source: Path, folder: Path, jvm: Sequence[str] = _JVM) -> list[str]:
    """Compile a program of one file into `folder`, and return how to run it.

    :param jvm: options of Java; by default those with which it starts quickest
    :raises CuratorMissing: it cannot be had
    """
    compiler = shutil.which("javac")
    jars = [DEBIAN_JARS / f"{name}.jar" for name in _JARS]
    if compiler is None or not all(jar.exists() for jar in jars):
        # `.ci/setup curator` does just that.
        raise CuratorMissing(
            "Curator or javac was not found. Install them with "
            "`apt-get install libcurator-recipes-java default-jdk-headless` (Debian, Ubuntu)."
        )
    try:
        # The logger that ZooKeeper's server uses would complain of its missing configuration.
        server = [jar for jar in zookeeper_jars() if not jar.name.startswith(("slf4j-log", "log"))]
        program = java()
    except ServerNotInstalled as error:
        raise CuratorMissing(str(error)) from error
    path = os.pathsep.join(map(str, [folder, *jars, *server]))
    subprocess.run([compiler, "-encoding", "UTF-8", "-cp", path, "-d", folder, source], check=True)
    return [str(program), *jvm, "-cp", path, source.stem]


def version() -> str:
    """Return the version that is installed; Debian has it in the name of one of two links."""
    jars = DEBIAN_JARS.glob("curator-recipes-*.jar")
    return next((jar.stem.removeprefix("curator-recipes-") for jar in jars), "")
