"""Settings of the shop as the screenshots show it: hosts with names, and nobody ends a deadlock."""

from __future__ import annotations

import threading

from distlock import owner
from example_project.settings import *  # noqa: F403 - as settings are derived
from example_project.settings import DISTLOCK


def host() -> str:
    """The staff's threads stand for another machine than the shop's."""
    name = threading.current_thread().name
    return "worker-1" if name.startswith(("report", "courier", "import")) else "web-1"


owner._hostname = host
DISTLOCK["default"]["DEADLOCK_AFTER"] = None
