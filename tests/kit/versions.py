"""Which combination of the support matrix a run of the tests covers."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, version

from distlock_chaos.install import ServerNotInstalled, zookeeper_jars


def pytest_report_header() -> str:
    """The versions of what distlock stands on, in a line; what is missing is said."""
    packages = (f"{name} {_version(name)}" for name in ("Django", "kazoo", "Celery"))
    python = f"Python {platform.python_version()}"
    return ", ".join([python, *packages, f"ZooKeeper {zookeeper()}"])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def zookeeper() -> str:
    """Return the version of the server that the tests start."""
    try:
        server = zookeeper_jars()[0]
    except ServerNotInstalled:
        return "missing"
    names = (path.name for path in server.parent.glob("zookeeper-*.jar"))
    found = (re.fullmatch(r"zookeeper-(\d[\d.]*)\.jar", name) for name in names)
    return next((name[1] for name in found if name), "of unknown version")
