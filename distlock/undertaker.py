"""A process that ends the sessions of its fellows when they die, so that their locks are free.

ZooKeeper by itself waits for the session timeout. The undertaker is forked from the process that
calls `start_undertaker`, before the workers are. All of them tell it their sessions, and when one
has died, of SIGKILL or of the OOM killer, it ends the dead one's sessions in the time of a round
trip or two (`takeover`).

- *It never ends the session of a living process*: that would give away a lock in use. Who reports
  is said by the kernel, and that a process has ended too, by a pidfd: one that is stopped lives,
  and where a process id was used again, the pidfd is of a living one.
- *It is a process and no thread.* A thread that connects while the master forks the next worker
  can leave that one with a lock taken for ever. And a process outlives the master, so that it
  serves workers without children too.
- *Nothing is on a disk or in a log.* A session's id and password, which are as secret as
  credentials, go through a pair of sockets that only these processes have.
- It ends when the last of them has ended. If it is killed, sessions time out as ever.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import struct
from contextlib import suppress
from functools import partial
from select import select
from selectors import EVENT_READ, DefaultSelector
from threading import Thread
from typing import NoReturn

from django.conf import settings

from .conf import configuration
from .loggers import safe
from .session import tell_sessions
from .takeover import end_session

logger = safe(logging.getLogger("distlock"))

#: How long it tries to end a session while ZooKeeper is away, in seconds. A new leader gives every
#: session its full timeout again.
TRY_SECONDS = 60.0

#: Linux's ``struct ucred``: process, user and group.
_CREDENTIALS = struct.Struct("3i")
_MAX_REPORT = 4096

#: Where this process reports, and its forked children.
_reports: socket.socket | None = None


def start_undertaker() -> bool:
    """Let the sessions of this process and of those that it forks from now on end with them.

    To be called once in a master process, before it forks and while it has no other threads. It
    forks the undertaker, and may be repeated. Children that are spawned instead of forked have no
    part in it.

    :return: False where the system cannot do it: it takes Linux 5.3 or newer
    :raises ImproperlyConfigured: Django has no settings in this process, or wrong ones
    """
    global _reports  # noqa: PLW0603 - one per process
    if _reports is not None:
        return True
    if not _can_see_deaths():
        logger.info("A killed process frees its locks with the session timeout: no pidfd here.")
        return False
    for alias in getattr(settings, "DISTLOCK", ()):
        configuration(alias)
    heard, told = _line()
    pid = os.fork()
    if pid == 0:
        _become_undertaker(heard, told)
    heard.close()
    with suppress(ChildProcessError):  # a master that waits for any child may be faster
        os.waitpid(pid, 0)
    _reports = told
    tell_sessions(_report)
    return True


def _can_see_deaths() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # another system, an old kernel, a sandbox
        return False
    return True


def _line() -> tuple[socket.socket, socket.socket]:
    """Return the socket on which the undertaker hears, and the one on which it is told."""
    heard, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # who has sent it
    told.setblocking(False)
    return heard, told


def _report(alias: str, session_id: int, password: bytes) -> None:
    if _reports is not None:
        with suppress(OSError):  # the undertaker has been killed, or is far behind
            _reports.send(json.dumps([alias, session_id, password.hex()]).encode())


# --- the undertaker ------------------------------------------------------------------------------


def _become_undertaker(heard: socket.socket, told: socket.socket) -> NoReturn:
    try:
        os.setsid()  # what is sent to the terminal's or the master's group is not for it
        if os.fork():
            os._exit(0)  # so that the undertaker is nobody's child to wait for
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        told.close()
        Undertaker(heard).run()
    except BaseException:
        logger.exception("The undertaker failed: locks of killed processes wait for the timeout.")
    finally:
        os._exit(0)


class _Process:
    """One that has reported."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: alias → id and password.
        self.sessions: dict[str, tuple[int, bytes]] = {}
        #: Becomes readable when the process has ended; None if it has been waited for already.
        self.pidfd: int | None = None
        with suppress(ProcessLookupError):
            self.pidfd = os.pidfd_open(pid)

    @property
    def dead(self) -> bool:
        return self.pidfd is None or bool(select([self.pidfd], [], [], 0)[0])


class Undertaker:
    """Hears of sessions, waits for deaths, and ends the sessions of the dead."""

    def __init__(self, heard: socket.socket) -> None:
        self._heard = heard
        self._known: dict[int, _Process] = {}
        self._burials: list[Thread] = []
        self._selector = DefaultSelector()
        self._selector.register(heard, EVENT_READ, self._hear)

    def run(self) -> None:
        """Serve until all who could report have ended, and their sessions with them."""
        while self._selector.get_map():
            for key, _ in self._selector.select():
                key.data()
        for burial in self._burials:
            burial.join()

    def _hear(self) -> None:
        report, said, _, _ = self._heard.recvmsg(_MAX_REPORT, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not report:
            self._selector.unregister(self._heard)
            return
        pid = _sender(said)
        process = self._known.get(pid)
        if process is not None and process.dead:  # and `pid` has been given to another one
            self._bury(process)
            process = None
        if process is None:
            process = self._known[pid] = _Process(pid)
            if process.pidfd is not None:
                self._selector.register(process.pidfd, EVENT_READ, partial(self._bury, process))
        alias, session_id, password = json.loads(report)
        process.sessions[alias] = session_id, bytes.fromhex(password)
        if process.dead:
            self._bury(process)

    def _bury(self, process: _Process) -> None:
        if self._known.get(process.pid) is not process:
            return  # in the meantime
        del self._known[process.pid]
        if process.pidfd is not None:
            self._selector.unregister(process.pidfd)
            os.close(process.pidfd)
        self._burials = [burial for burial in self._burials if burial.is_alive()]
        for alias, credentials in process.sessions.items():
            burial = Thread(target=_end, args=(process.pid, alias, *credentials))
            burial.start()
            self._burials.append(burial)


def _sender(said: list[tuple[int, int, bytes]]) -> int:
    """Return who has sent a report, as the kernel says."""
    ((_, _, credentials),) = said
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid


def _end(pid: int, alias: str, session_id: int, password: bytes) -> None:
    if end_session(configuration(alias), session_id, password, TRY_SECONDS):
        logger.warning(
            "Process %d died without closing its ZooKeeper session (alias %r). The session was "
            "ended, and its locks are free.",
            pid,
            alias,
        )
