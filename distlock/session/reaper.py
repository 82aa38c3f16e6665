"""Starts the session reaper beside a master process, and reports sessions to it.

The `session_reaper` ends the sessions of processes that die, so that their locks are free at once.
The process that calls `start_session_reaper`, and those that it forks from then on, report when
their sessions begin and when they close them in order.

A report has a session's id and password, and the credentials of ``AUTH``, and may go to the
reaper's socket only. A program may close the descriptors that it has inherited, as Celery's
embedded beat does, and the number of a closed one soon belongs to a connection to a broker or a
database. So each report checks that the number still stands for the socket.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from distlock.conf import configuration
from distlock.engine import session_reaper
from distlock.engine.hosts import engine_of
from distlock.logs.loggers import logger
from distlock.process import interpreter

from .registry import observe_sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.conf import Configuration


#: The variables that the reaper gets: they tell the system and OpenSSL where their files are.
_ENVIRONMENT: Final = ("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")

#: The reaper, without the packages of this environment.
_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from distlock.engine import session_reaper; session_reaper.main()"
)

#: Where this process and its forked children report: a number, and its socket's device and inode.
_reports: tuple[int, tuple[int, int]] | None = None


def start_session_reaper() -> bool:
    """End the sessions of this process and of its forked children when these processes end.

    Call it in a master process before it forks. It starts the session reaper, a small process of
    its own, once. It does not serve children that are spawned instead of forked.

    :return: False if the system cannot do it: it takes Linux 5.3 or newer
    :raises ImproperlyConfigured: Django has no settings in this process, or wrong ones
    """
    global _reports  # noqa: PLW0603 - one per process
    with _own() as number:
        if number is not None:
            return True
    if not _can_see_deaths():
        logger.info("A killed process frees its locks with the session timeout: no pidfd here.")
        return False
    for alias in getattr(settings, "DISTLOCK", ()):
        configuration(alias)
    receiving, sending = _pair()
    with receiving:
        if not _start_reaper(receiving):
            sending.close()
            return False
    # Keep no socket object: it would close its number some day, whatever that stands for then.
    number = sending.detach()
    _reports = number, _identity(number)
    observe_sessions(_report)
    return True


def _can_see_deaths() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # another system, an old kernel, a sandbox
        return False
    return True


def _pair() -> tuple[socket.socket, socket.socket]:
    """Return the socket on which the reaper receives, and the one on which processes report."""
    receiving, sending = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiving.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel names the sender
    sending.setblocking(False)
    return receiving, sending


def _start_reaper(receiving: socket.socket) -> bool:
    """Start the program with no descriptor, argument or variable that could hold a secret."""
    try:
        subprocess.run(
            [interpreter(), "-I", "-S", "-c", _PROGRAM, str(Path(__file__).parents[2])],
            stdin=receiving.fileno(),
            stdout=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,  # away from signals to the terminal's or the master's group
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        logger.warning(
            "The session reaper could not be started (%s): locks of killed processes are free "
            "after the session timeout.",
            error,
        )
        return False
    return True


def end_session(conf: Configuration, session_id: int, password: bytes, timeout: float) -> bool:
    """End a dead process's session on the server, which frees its locks, in some 10 ms.

    :param timeout: seconds to keep trying while the servers are away
    :return: whether the session was alive
    :raises OSError: no server could be asked, or none accepted the credentials
    """
    report = engine_of(conf.hosts).report(conf, session_id, password)
    return session_reaper.end_session(report, timeout)


# --- reports -------------------------------------------------------------------------------------


def _report(conf: Configuration, session_id: int, password: bytes | None) -> None:
    """Report that a session has begun or, without a password, that it was closed."""
    if password is None:
        _send({"alias": conf.alias, "session": session_id})
    else:
        _send(engine_of(conf.hosts).report(conf, session_id, password))


def _send(report: dict[str, Any]) -> None:
    with suppress(OSError), _own() as number:  # the reaper was killed, or is far behind
        if number is not None:
            os.write(number, json.dumps(report, default=os.fspath).encode())


@contextmanager
def _own() -> Iterator[int | None]:
    """Duplicate the socket's number for a block; yield None if it is another file by now.

    Nobody else can close the duplicate between the check and the use.
    """
    if _reports is None:
        yield None
        return
    inherited, identity = _reports
    try:
        number = os.dup(inherited)
    except OSError:  # somebody has closed it
        yield None
        return
    try:
        yield number if _identity(number) == identity else None
    finally:
        os.close(number)


def _identity(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino
