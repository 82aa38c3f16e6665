"""Count the Python calls of one uncontended acquire and release, and the frames to the socket.

python -m benchmarks.calls [--cycles 300] [--hosts HOST:PORT] [--functions]

It prints the medians as JSON, and a table by room. Without ``--hosts`` it starts a ZooKeeper.
It does not count calls into C, and counts a generator each time it goes on. The exit code is 1 if
there are more calls or frames than the budget allows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distlock_chaos.server import ZooKeeper

if TYPE_CHECKING:
    from types import FrameType

#: The budget: calls in all threads, and frames from `Mutex.acquire` to the socket.
MOST_CALLS: Final = 154
MOST_FRAMES: Final = 10

#: How many cycles go first, until all parents are there and the heartbeat sleeps.
WARM_UP: Final = 50
#: How long the connection thread has for the reply to the delete, in seconds.
QUIET: Final = 0.005

_PACKAGE: Final = "/distlock/"


class Profile:
    """Counts calls in all threads that begin after it, and in its own."""

    def __init__(self) -> None:
        self._caller = threading.get_ident()
        self._counting = False
        #: (in the caller's thread, file, function) → calls.
        self.calls: Counter[tuple[bool, str, str]] = Counter()
        #: The frames from `Mutex.acquire` to each send.
        self.depths: list[int] = []
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def end(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def cycle(self, lock: Any) -> tuple[int, int]:
        """Return the calls of one acquire and release: in the caller's thread, and in others."""
        before = self._totals()
        self._counting = True
        lock.acquire()
        lock.release()
        time.sleep(QUIET)
        self._counting = False
        caller, others = self._totals()
        return caller - before[0], others - before[1]

    def _totals(self) -> tuple[int, int]:
        caller = sum(calls for (mine, *_), calls in self.calls.items() if mine)
        return caller, self.calls.total() - caller

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._counting:
            return
        mine = threading.get_ident() == self._caller
        if event == "call":
            code = frame.f_code
            self.calls[mine, code.co_filename, code.co_name] += 1
        elif event == "c_call" and mine and argument.__name__ == "send":
            depth = _depth(frame)
            if depth:
                self.depths.append(depth)


def _depth(frame: FrameType | None) -> int:
    """Return how many frames there are from `Mutex.acquire` to this one, 0 below another call."""
    depth = 0
    while frame is not None:
        depth += 1
        code = frame.f_code
        if code.co_name == "acquire" and code.co_filename.endswith("/locks/lock.py"):
            return depth
        frame = frame.f_back
    return 0


def measure(hosts: str, cycles: int) -> tuple[dict[str, float], Profile]:
    """Return the medians of so many cycles, and what was counted. For a process of its own."""
    profile = Profile()  # before the session's threads begin
    set_up(hosts)
    from distlock import zk_lock  # noqa: PLC0415 - needs the settings

    lock = zk_lock("calls")
    for _ in range(WARM_UP):
        profile.cycle(lock)
    profile.calls.clear()
    caller, others = zip(*(profile.cycle(lock) for _ in range(cycles)), strict=True)
    profile.end()
    figures = {"caller": statistics.median(caller), "others": statistics.median(others)}
    figures["total"] = sum(figures.values())
    return figures | {"frames": max(profile.depths)}, profile


def set_up(hosts: str) -> None:
    import django  # noqa: PLC0415 - none of it before the profile
    from django.conf import settings  # noqa: PLC0415

    settings.configure(
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "distlock"],
        DATABASES={},
        # No heartbeat comes between.
        DISTLOCK={"default": {"HOSTS": hosts, "SESSION_TIMEOUT": 60, "TIMEOUT": 60}},
    )
    django.setup()


# --- what is shown -------------------------------------------------------------------------------


def room(path: str) -> str:
    """Return the room of the package that a file is in, or whose the file is."""
    for library in ("kazoo", "django", "asgiref"):
        if f"/{library}/" in path:
            return library
    if _PACKAGE not in path:
        return "Python"
    return "distlock/" + path.rpartition(_PACKAGE)[2].removesuffix(".py").partition("/")[0]


def table(profile: Profile, cycles: int) -> str:
    """Return a Markdown table: where the calls are."""
    calls: Counter[tuple[str, bool]] = Counter()
    for (mine, path, _), number in profile.calls.items():
        calls[room(path), mine] += number
    rows = ["| room | caller | connection thread |", "| --- | ---: | ---: |"]
    rows += [
        f"| {name} | {calls[name, True] / cycles:.0f} | {calls[name, False] / cycles:.0f} |"
        for name in sorted({name for name, _ in calls})
    ]
    return "\n".join(rows) + "\n"


def functions(profile: Profile, cycles: int) -> str:
    """Return each function with its calls in a cycle, the most frequent first."""
    lines = [
        f"{number / cycles:6.2f}  {'caller' if mine else 'others'}  {Path(path).name}:{name}"
        for (mine, path, name), number in profile.calls.most_common()
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    with ExitStack() as stack:
        hosts = options.hosts or stack.enter_context(ZooKeeper()).hosts
        figures, profile = measure(hosts, options.cycles)
    sys.stdout.write(f"{json.dumps(figures)}\n\n{table(profile, options.cycles)}")
    if options.functions:
        sys.stdout.write(f"\n{functions(profile, options.cycles)}")
    return int(figures["total"] > MOST_CALLS or figures["frames"] > MOST_FRAMES)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.calls", description=__doc__)
    parser.add_argument("--cycles", type=int, default=300, help="the medians of so many")
    parser.add_argument("--hosts", default="", help="of a ZooKeeper that runs")
    parser.add_argument("--functions", action="store_true", help="list each function, too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
