"""Where this machine keeps Java's Curator, and how a program that uses it is compiled and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks import newer_curator
from distlock_chaos.install import DEBIAN_JARS, ServerNotInstalled, java, zookeeper_jars

CONTENDER = Path(__file__).parent / "contenders" / "Contender.java"

# The JVM starts quickest so.
_JVM = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_JARS = ("curator-recipes", "curator-framework", "curator-client", "guava", "slf4j-nop")


class CuratorMissing(Exception):
    """Curator or a Java compiler was not found; the message says what to install."""


def command(
    source: Path, folder: Path, jvm: Sequence[str] = _JVM, *, newer: bool = False
) -> list[str]:
    """Compile a program of one file into `folder`, and return how to run it.

    :param jvm: options of Java; by default those with which it starts quickest
    :param newer: with the Curator of `newer_curator`, and not with that of Debian
    :raises CuratorMissing: it cannot be had
    """
    try:
        jars, program = _newer_jars() if newer else _debian_jars(), java()
    except ServerNotInstalled as error:
        raise CuratorMissing(str(error)) from error
    compiler = shutil.which("javac")
    if compiler is None:
        raise CuratorMissing(_INSTALL)
    path = os.pathsep.join(map(str, [folder, *jars]))
    subprocess.run([compiler, "-encoding", "UTF-8", "-cp", path, "-d", folder, source], check=True)
    return [str(program), *jvm, "-cp", path, source.stem]


# `.ci/setup curator newer-curator` does just that.
_INSTALL = (
    "Curator or javac was not found. Install them with "
    "`apt-get install libcurator-recipes-java default-jdk-headless` (Debian, Ubuntu)."
)


def _debian_jars() -> list[Path]:
    jars = [DEBIAN_JARS / f"{name}.jar" for name in _JARS]
    if not all(jar.exists() for jar in jars):
        raise CuratorMissing(_INSTALL)
    # The logger that ZooKeeper's server uses would complain of its missing configuration.
    return jars + [jar for jar in zookeeper_jars() if not jar.name.startswith(("slf4j-log", "log"))]


def _newer_jars() -> list[Path]:
    jars = [jar for jar in newer_curator.jars() if not jar.name.startswith("log4j")]
    if not jars:
        raise CuratorMissing(
            f"Curator {newer_curator.VERSION} was not found. Fetch it with "
            "`.ci/setup newer-curator`."
        )
    return jars


def version(*, newer: bool = False) -> str:
    """Return the version that is installed; Debian has it in the name of one of two links."""
    if newer:
        return newer_curator.VERSION
    jars = DEBIAN_JARS.glob("curator-recipes-*.jar")
    return next((jar.stem.removeprefix("curator-recipes-") for jar in jars), "")
