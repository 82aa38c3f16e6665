"""Records events: JSON lines, one write per event, on one clock for all processes of the machine.

A file is opened with O_APPEND and an event is one write, so processes and threads may share it and
a SIGKILL leaves whole lines.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The version of the format that django-distlock-chaos/README.md describes.
FORMAT = 1
#: One event: its name is in "event", its time (CLOCK_MONOTONIC, nanoseconds) in "at".
Event = dict[str, Any]


class History:
    """Writes events to one file; from any thread and any process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def say(self, event: str, **facts: Any) -> int:
        """Write one event and return its time; `facts` may bring a time of their own."""
        said = {"event": event, "at": time.monotonic_ns(), **facts}
        os.write(self._file, json.dumps(said, separators=(",", ":")).encode() + b"\n")
        return int(said["at"])

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(*paths: Path) -> list[Event]:
    """Return the events of several files in the order of their times.

    :raises ValueError: a line is no event, or the format is not this version's
    """
    events = [
        _event(path, number, line)
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), start=1)
    ]
    for event in events:
        if event["event"] == "run" and event.get("format") != FORMAT:
            raise ValueError(
                f"The history has format {event.get('format')!r}, and this version of distlock "
                f"reads format {FORMAT}: check it with the version that wrote it."
            )
    return sorted(events, key=lambda event: event["at"])


def _event(path: Path, number: int, line: str) -> Event:
    with suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict) and isinstance(event.get("at"), int) and event.get("event"):
            return event
    raise ValueError(f"{path}, line {number}: not an event of a history: {line:.80}")


def write(path: Path, events: Iterable[Event]) -> None:
    """Write events as one file of JSON lines."""
    with path.open("w") as lines:
        lines.writelines(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
