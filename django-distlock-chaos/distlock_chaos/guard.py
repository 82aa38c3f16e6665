"""Child processes that never outlive the process that started them, not even after its SIGKILL.

The parent keeps the writing end of a pipe, the *lifeline*. The child begins as this file, run as a
script: it forks a watcher and then becomes the command, so that the process id the parent knows
is the command's own. When the kernel closes the lifeline, for whatever reason, the watcher ends
the command.

Linux's PR_SET_PDEATHSIG is not used: it fires when the starting *thread* ends, and a fixture
may well start a server in a thread.
"""

from __future__ import annotations

import functools
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_lifelines: set[int] = set()


class GuardedProcess(subprocess.Popen[str]):
    """A running command, in a session of its own so that the terminal's Ctrl-C does not reach it.

    `output` receives what the command prints. With `piped`, the command reads from the pipe `stdin`
    and prints into the pipe `stdout`, and only its errors go to `output`. When this process dies,
    the command gets `last_signal`, and `folder`, if given, is removed.
    """

    #: Only those of a piped process are there.
    stdin: IO[str]
    stdout: IO[str]

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        output: Path,
        cwd: Path,
        folder: Path | None = None,
        last_signal: signal.Signals = signal.SIGKILL,
        piped: bool = False,
    ) -> None:
        _close_lifelines_in_forks()
        reading, self._lifeline = os.pipe()
        _lifelines.add(self._lifeline)
        guard = [str(reading), str(int(last_signal)), str(folder or "")]
        try:
            with output.open("ab") as log:
                super().__init__(
                    [sys.executable, "-IS", __file__, *guard, *command],
                    stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else log,
                    stderr=log,
                    text=True,
                    cwd=cwd,
                    pass_fds=[reading],
                    start_new_session=True,
                )
        except BaseException:
            self._cut_lifeline()
            raise
        finally:
            os.close(reading)

    @property
    def running(self) -> bool:
        return self.poll() is None

    #: Nothing happens when the command has ended.
    send = subprocess.Popen.send_signal

    def pause(self) -> None:
        """SIGSTOP; returns when each of its threads has stopped, or the command has ended.

        The signal only asks the main thread to stop the process. Until that one has got a
        processor, the others go on.
        """
        self.send_signal(signal.SIGSTOP)
        with suppress(ChildProcessError):  # It has ended, and was waited for.
            os.waitpid(self.pid, os.WUNTRACED)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the command has ended; its status. Raises `subprocess.TimeoutExpired`."""
        status = super().wait(timeout)
        self._cut_lifeline()
        return status

    def _cut_lifeline(self) -> None:
        if self._lifeline in _lifelines:
            _lifelines.discard(self._lifeline)
            os.close(self._lifeline)


@functools.cache
def _close_lifelines_in_forks() -> None:
    # A forked child would hold the pipe open and so keep the command alive after its parent.
    os.register_at_fork(after_in_child=_close_lifelines)


def _close_lifelines() -> None:
    while _lifelines:
        os.close(_lifelines.pop())


def _become(lifeline: int, last_signal: int, folder: str, command: list[str]) -> None:
    """Leave a watcher behind and turn this process into `command`."""
    pid = os.getpid()
    alive, held_by_command = os.pipe()
    if os.fork() == 0:
        os.close(held_by_command)
        _watch(pid, lifeline, alive, last_signal, folder)
        os._exit(0)
    os.close(lifeline)
    os.close(alive)
    os.set_inheritable(held_by_command, True)
    os.execvp(command[0], command)  # noqa: S606 - the caller's command, and no shell is wanted


def _watch(pid: int, lifeline: int, alive: int, last_signal: int, folder: str) -> None:
    # Both pipes carry no data: they become readable when the last process at the other end is gone.
    readable, _, _ = select.select([lifeline, alive], [], [])
    if alive in readable:
        return  # The command ended first; its parent may start it again, in the same folder.
    with suppress(ProcessLookupError):
        os.kill(pid, last_signal)
        os.kill(pid, signal.SIGCONT)
    select.select([alive], [], [])
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
