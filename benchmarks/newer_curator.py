"""Fetch Curator 5.7 and ZooKeeper 3.9, which Debian does not have, into a cache of the user.

PySpark's source distribution holds their jars, so pip can fetch them from PyPI: 434 MB, of which
the cache keeps 16. pip compares the checksum. The cache looks like an unpacked Apache ZooKeeper, so
``ZOOKEEPER_HOME`` may name it.

``python -m benchmarks.newer_curator`` fetches; with ``--missing`` it only says what is missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "5.7.1"
_SOURCE = (
    "pyspark==4.0.1 --hash=sha256:9d1f22d994f60369228397e3479003ffe2dd736ba79165003246ff7bd48e2c73"
)
_NEEDED = re.compile(
    r"(curator-(client|framework|recipes)-5|zookeeper-(jute-)?3|guava-|failureaccess-|slf4j-api-"
    r"|log4j-(api|core|slf4j2-impl)-|metrics-core-|snappy-java-|netty-(buffer|codec|common|handler"
    r"|resolver|transport|transport-native-unix-common|transport-classes-epoll)-\d)[\w.-]*\.jar"
)
_COUNT = 21
_HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
#: An unpacked Apache ZooKeeper 3.9, with Curator beside it.
HOME = _HOME / "distlock" / f"curator-{VERSION}"


def jars() -> list[Path]:
    """Return the class path, empty where nothing was fetched."""
    return sorted(HOME.glob("lib/*.jar"))


def fetch() -> None:
    """Fill the cache, if it is empty; whoever is interrupted leaves it as it was."""
    if jars():
        return
    HOME.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=HOME.parent) as temporary:
        folder = Path(temporary)
        (folder / "requirements.txt").write_text(_SOURCE)
        # pip has no way to download a source distribution without preparing it, which does no harm.
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir"),
                *("--disable-pip-version-check", "--no-deps", "--no-binary=:all:"),
                *("--require-hashes", "-r", "requirements.txt", "-d", "."),
            ],
            cwd=folder,
            check=True,
        )
        (archive,) = folder.glob("pyspark-*.tar.gz")
        (folder / "home" / "lib").mkdir(parents=True)
        _unpack(archive, folder / "home" / "lib")
        try:
            (folder / "home").rename(HOME)
        except OSError:  # another process was faster
            if not jars():
                raise


def _unpack(archive: Path, folder: Path) -> None:
    found = 0
    with tarfile.open(archive) as members:
        for member in members:
            name = Path(member.name).name
            content = members.extractfile(member) if _NEEDED.fullmatch(name) else None
            if content is not None:
                (folder / name).write_bytes(content.read())
                found += 1
    if found != _COUNT:
        raise RuntimeError(f"{archive.name} has {found} of the {_COUNT} jars that are needed.")


if __name__ == "__main__":
    if "--missing" in sys.argv[1:]:
        sys.exit(not jars() and f"Curator {VERSION} was not found.")
    fetch()
