"""`manage.py distlock run`: runs a command under a lock, as flock(1) does on one machine."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import time
from argparse import REMAINDER
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.exceptions import LockBusy, LockLost
from distlock.locks.mutex import zk_lock
from distlock.management.output import USAGE, add_alias, exit_statuses, seconds
from distlock.management.watchdog import LOOK_SECONDS, NOT_EXECUTABLE, NOT_FOUND, WatchedCommand
from distlock.owner.hold import Hold
from distlock.owner.owner import label
from distlock.session.registry import session_for

HELP = "Run a command under a lock that all machines share, as flock(1) does on one machine."
EXAMPLES = {
    "run --lock nightly -- ./report.sh": "wait until nobody else runs it",
    "run --lock nightly --timeout 0 -E 0 -- ./report.sh": "let the first host run it alone",
    "run --lock nightly --hold-at-least 60 -- ./report.sh": "not twice in a minute",
}

#: Exit statuses beside the command's own: flock's, a shell's, and those of sysexits.h.
BUSY: Final = 1
LOST: Final = os.EX_TEMPFAIL  # 75

#: The signals that we pass on to the command.
PASSED_ON: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def add_arguments(parser: CommandParser) -> None:
    parser.usage = "manage.py distlock run --lock KEY [options] -- COMMAND [ARGUMENT ...]"
    parser.epilog = (
        "Exit status: the command's; 128 + n after signal n; 1 (or -E) when the lock is busy; "
        "69 when the lock server is not available; 75 when the lock was lost; 126 and 127 when the "
        "command cannot be executed or found."
    )
    parser.add_argument("--lock", required=True, metavar="KEY", help="the key of the lock")
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="how long to wait for the lock; 0 tries once (default: for ever)",
    )
    parser.add_argument(
        "--hold-at-least",
        type=seconds,
        metavar="SECONDS",
        help="keep the key taken for so long from the start, even if the command ends earlier",
    )
    add_alias(parser)
    parser.add_argument(
        "-E",
        "--conflict-exit-code",
        type=int,
        default=BUSY,
        metavar="N",
        help="the exit status when the lock is busy (default 1)",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help=(
            "how long the command may take to end after SIGTERM, before SIGKILL (default 30); "
            "when the lock is lost or about to be, no longer than a twelfth of the session timeout"
        ),
    )
    parser.add_argument("command", nargs=REMAINDER, metavar="-- COMMAND")


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    argv = _argv(options["command"])
    with exit_statuses():
        status = _run_locked(command, argv, options)
    sys.exit(status)


def _run_locked(command: BaseCommand, argv: list[str], options: dict[str, Any]) -> int:
    key, using = options["lock"], options["using"]
    try:
        lock = zk_lock(
            key,
            timeout=options["timeout"],
            using=using,
            hold_at_least=options["hold_at_least"] or None,
        )
        with _Signals() as signals, label(f"run {Path(argv[0]).name}"), lock as hold:
            signals.end_the_wait = False
            # At the end of its proven hold it is killed: from then on, others may have the lock.
            spare = session_for(using).timeout / 12
            ours = {"DISTLOCK_KEY": key, "DISTLOCK_TOKEN": str(hold.token)}
            environment = {**os.environ, **ours}
            with WatchedCommand(argv, environment=environment, seconds=hold.valid_for()) as started:
                return _to_its_end(
                    started,
                    hold,
                    signals.received,
                    grace=options["grace"],
                    spare=spare,
                    say=command.stderr.write,
                )
    except LockBusy as busy:
        by = f" It is held by {busy.holder}." if busy.holder else ""
        hint = "Wait longer with --timeout, or without it for ever."
        message = f"The lock {key!r} is busy after {busy.waited:.1f} s.{by} {hint}"
        raise CommandError(message, returncode=options["conflict_exit_code"]) from None
    except LockLost as lost:
        raise CommandError(str(lost), returncode=LOST) from None
    except OSError as error:
        raise CommandError(f"{argv[0]}: {error}", returncode=NOT_EXECUTABLE) from error


def _to_its_end(
    command: WatchedCommand,
    hold: Hold,
    received: list[int],
    *,
    grace: float,
    spare: float,
    say: Callable[[str], object],
) -> int:
    """Wait until all processes of the command have ended, and return its exit status.

    :param grace: seconds from SIGTERM to SIGKILL
    :param spare: the same when the lock is lost, or about to be
    """
    lost, kill_at = False, math.inf

    def end(grace: float, why: str = "") -> None:
        nonlocal kill_at
        if why:
            say(f"distlock run: {why}; SIGTERM.")
        command.send(signal.SIGTERM)
        kill_at = min(kill_at, time.monotonic() + grace)

    while command.running and time.monotonic() < kill_at:
        time.sleep(LOOK_SECONDS)
        if (left := hold.valid_for()) > spare:
            command.feed(left)
        elif not lost:
            lost = True
            end(min(grace, spare), f"the lock {hold.key!r} is lost, or about to be")
        while received:
            if (number := received.pop(0)) == signal.SIGTERM:
                end(grace)
            else:
                command.send(number)
        if command.status is not None and kill_at == math.inf and command.running:
            end(grace, "the command has ended and left processes behind")
    if command.running:
        say("distlock run: what got SIGTERM has not ended in time; SIGKILL.")
        command.kill()
    if lost:
        hold.check()
        raise LockLost(f"The lock {hold.key!r} was safe again only after SIGTERM.")
    return command.status or 0


class _Signals:
    """Notes signals in `received`; ends the wait for the lock, if there is one."""

    def __init__(self) -> None:
        self.end_the_wait = True
        self.received: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        for number in PASSED_ON:
            if signal.getsignal(number) != signal.SIG_IGN:  # by nohup, or a shell's &
                self._before[number] = signal.signal(number, self._came)
        # Ctrl-Z would stop us alone, and thereby end the session and the command.
        self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.end_the_wait:
            sys.exit(128 + number)
        self.received.append(number)


def _argv(given: list[str]) -> list[str]:
    """Return the command, after a check that it can run, so that nobody waits in vain."""
    argv = given[1:] if given[:1] == ["--"] else given
    if not argv:
        raise CommandError(
            "Name the command after --, such as: distlock run --lock nightly -- sh nightly.sh",
            returncode=USAGE,
        )
    if shutil.which(argv[0]) is None:
        if Path(argv[0]).exists() and "/" in argv[0]:
            raise CommandError(f"{argv[0]} is not executable.", returncode=NOT_EXECUTABLE)
        raise CommandError(f"{argv[0]} was not found.", returncode=NOT_FOUND)
    return argv
