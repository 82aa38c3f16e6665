"""Runs a command that never outlives its lock, even if the holder's process is killed or paused.

The holder feeds a *watchdog*, a small process beside the command, with the moment until which
nobody else can have the lock. When that moment passes without a new one, the watchdog kills the
command. When the pipe between the two closes, it asks the command to end first.

The command begins as this file, run as a script: it leaves the watchdog behind and then becomes the
command, so there is no moment without a watchdog. The watchdog has no parent: a command that waits
for all of its children must not wait for it. Signals go to the whole process group, since a shell
passes none on. The command leads a session, so Ctrl-C and Ctrl-Z reach the holder alone.
"""

from __future__ import annotations

import math
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

#: Exit statuses of a command that could not be started, as a shell has them.
NOT_EXECUTABLE, NOT_FOUND = 126, 127

# The server does not wait while the machine sleeps.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MOMENT = struct.Struct("d")
#: The seconds between two looks at the command, the lock and the signals.
LOOK_SECONDS = 0.05


class WatchedCommand:
    """A running command with its watchdog; a context manager, which kills the rest at its end.

    :param seconds: the time that it may run without a `feed`
    """

    def __init__(
        self, argv: Sequence[str], *, environment: Mapping[str, str], seconds: float
    ) -> None:
        reading, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        moment = repr(_now() + seconds)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-IS", __file__, str(reading), moment, *argv],
                env=environment,
                pass_fds=[reading],
                start_new_session=True,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(reading)

    def __enter__(self) -> WatchedCommand:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.send(signal.SIGKILL)
        self._process.wait()
        self.feed(math.inf)
        os.close(self._pipe)

    @property
    def status(self) -> int | None:
        """The exit status, 128 + n after signal n as in a shell; None while it runs."""
        status = self._process.poll()
        return status if status is None or status >= 0 else 128 - status

    @property
    def running(self) -> bool:
        """Whether the command, or another process in its group, still runs."""
        if self._process.poll() is None:
            return True
        with suppress(ChildProcessError):  # as the first process of a container we get orphans
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass
        return _signal(self._process.pid, 0)

    def send(self, number: int) -> None:
        """Send a signal to the command's process group, if it exists and we may."""
        _signal(self._process.pid, number)

    def kill(self) -> None:
        """Kill what runs, and wait for its end; for zombies that nobody reaps, only a second."""
        self.send(signal.SIGKILL)
        self._process.wait()
        until = time.monotonic() + 1
        while self.running and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)

    def feed(self, seconds: float) -> None:
        """Let the command run for so long from now on."""
        # A watchdog that somebody has stopped or killed must not stop us.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipe, _MOMENT.pack(_now() + seconds))


def _now() -> float:
    return time.clock_gettime(_CLOCK)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group if we may, and return whether there is one; 0 only looks."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's (sudo), which we can only wait for
        return True
    return True


def _become(argv: list[str], *, pipe: int, moment: float) -> None:
    """Leave a watchdog behind and turn this process into the command."""
    group = os.getpid()
    if os.fork() == 0:
        try:
            os.setsid()  # before the next fork: the watchdog is never in the command's group
            if os.fork() == 0:
                _watch(group, pipe, moment)
        finally:
            os._exit(0)
    os.wait()
    os.close(pipe)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - the user's command, and no shell is wanted
    except OSError as error:
        _say(f"{argv[0]}: {error.strerror}")
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def _watch(group: int, pipe: int, moment: float) -> None:
    """Kill the command at `moment`, unless a later moment arrives in time."""
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):  # who reads the command's output waits for its end
        os.dup2(nowhere, standard)
    fed = True
    while fed and (left := moment - _now()) > 0:
        # In small steps, for a sleep of the machine does not count here.
        if select.select([pipe], [], [], min(left, 1))[0]:
            told = os.read(pipe, 512 * _MOMENT.size)
            fed = bool(told)
            if fed:
                (moment,) = _MOMENT.unpack(told[-_MOMENT.size :])
    if moment == math.inf:
        return
    if not fed and _signal(group, 0):
        _say("the process that holds the lock has died; the command gets SIGTERM.")
        _signal(group, signal.SIGTERM)
        while _signal(group, 0) and _now() < moment:
            time.sleep(LOOK_SECONDS)
    if _signal(group, 0):
        _say("the lock is about to be lost and nobody has ended the command; it gets SIGKILL.")
        _signal(group, signal.SIGKILL)


def _say(text: str) -> None:
    with suppress(OSError):  # nobody listens any more
        os.write(2, f"distlock run: {text}\n".encode(errors="replace"))


if __name__ == "__main__":
    _become(sys.argv[3:], pipe=int(sys.argv[1]), moment=float(sys.argv[2]))
