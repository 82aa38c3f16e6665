"""The session reaper: a program that ends the sessions of processes that have died.

`session.reaper` starts it beside a master process. The master and its forked children report their
sessions to it over the socket that is its standard input. It watches these processes, and when one
dies, by SIGKILL or by the OOM killer, it ends the sessions of the dead process in the time of a few
round trips. ZooKeeper itself waits for the session timeout.

- *It never ends the session of a living process*: that would give away a lock in use. The kernel
  names the sender of each report, and a pidfd tells when that process has ended. A stopped process
  lives, and so does a new process that has the id of a dead one.
- *It is a small process of its own.* It outlives the master, and imports neither Django nor kazoo,
  which take ten times its memory; of distlock only what needs nothing else.
- *Secrets come through the socket only*: the credentials of ``AUTH`` and ``TLS``, and a session's
  id and password, with which any client that the server answers can end that session. Arguments
  and environment, which other users and programs can read, contain none.
- It ends with the last process that can report. If it is killed, sessions time out as usual.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from distlock.jute import (
    AUTH,
    AUTH_XID,
    CLOSE,
    INTEGER,
    REPLY,
    Record,
    pack_connect,
    pack_integer,
    pack_request,
    pack_text,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

#: The seconds for which it tries to end a session while the servers are away. A new leader gives
#: every session its full timeout again.
TRY_SECONDS: Final = 60.0
#: The seconds that a server may take for each answer before the reaper asks the next server.
ANSWER_SECONDS: Final = 2.0
#: The seconds to wait after all servers have failed.
_PAUSE_SECONDS: Final = 0.25

#: The longest report, in bytes.
LONGEST_REPORT: Final = 65_536

#: Linux's ``struct ucred``: process, user and group.
_CREDENTIALS: Final = struct.Struct("3i")

# --- the processes -------------------------------------------------------------------------------


class Process:
    """A process that has reported a session."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: The report of its session for each alias.
        self.sessions: dict[str, Mapping[str, Any]] = {}
        #: Becomes readable when the process has ended; None if its parent has waited for it.
        self.pidfd: int | None = None
        with suppress(ProcessLookupError):  # any other error must not pass for a death
            self.pidfd = os.pidfd_open(pid)

    @property
    def dead(self) -> bool:
        """Whether it has ended."""
        return self.pidfd is None or _readable([self.pidfd], 0)

    def close(self) -> None:
        """Stop watching it."""
        if self.pidfd is not None:
            os.close(self.pidfd)


class Reaper:
    """Receives reports, waits for deaths, and ends the sessions of dead processes.

    A report is a JSON object. With a ``password`` it says that a session has begun, and how to
    reach the servers (see `end_session`); without one, that the session was closed in order.

    :param reports: the receiving end of a pair of sockets with packets and ``SO_PASSCRED``
    """

    def __init__(self, reports: socket.socket) -> None:
        reports.setblocking(False)
        self._reports = reports
        #: In the order of their first reports; a new process may have the id of a dead one.
        self._processes: list[Process] = []

    def run(self) -> None:
        """Serve until no process can report any more, and all reporters have ended.

        Python ends when the threads that it has started have.
        """
        while self._watched():
            _readable(self._watched(), None)
            self.step()

    def _watched(self) -> list[int]:
        pidfds = [process.pidfd for process in self._processes if process.pidfd is not None]
        number = self._reports.fileno()
        return pidfds if number < 0 else [number, *pidfds]

    def step(self) -> None:
        """Act on all that has happened so far."""
        self._receive()  # first, since a process that closes its session dies soon after
        for process in list(self._processes):
            dead = process.dead
            for report in process.sessions.values() if dead else ():
                threading.Thread(target=_end, args=(process.pid, report)).start()
            if dead or not process.sessions:
                self._processes.remove(process)
                process.close()

    def _receive(self) -> None:
        while self._reports.fileno() >= 0:
            try:
                report, ancillary, _, _ = self._reports.recvmsg(
                    LONGEST_REPORT, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except BlockingIOError:
                return
            if report:
                self._note(_sender(ancillary), json.loads(report))
            else:  # the last process that could report has gone
                self._reports.close()

    def _note(self, pid: int, report: Mapping[str, Any]) -> None:
        if not pid:  # in another process namespace, where nobody here can see its death
            return
        alias = report["alias"]
        known = [process for process in self._processes if process.pid == pid]
        if "password" not in report:
            for process in known:
                if process.sessions.get(alias, {}).get("session") == report["session"]:
                    del process.sessions[alias]
            return
        if not known or known[-1].dead:  # then this may be another process with the same id
            known.append(Process(pid))
            self._processes.append(known[-1])
        known[-1].sessions[alias] = report


def _readable(numbers: list[int], milliseconds: int | None) -> bool:
    waiting = select.poll()
    for number in numbers:
        waiting.register(number, select.POLLIN)
    return any(event & select.POLLIN for _, event in waiting.poll(milliseconds))


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the process id of a report's sender, as the kernel names it."""
    ((_, _, credentials),) = ancillary
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid


def _end(pid: int, report: Mapping[str, Any]) -> None:
    try:
        if not end_session(report, TRY_SECONDS):  # it was over before
            return
        text = "was ended, and its locks are free."
    except OSError as error:
        text = f"could not be ended: {error!r:.500}. Its locks are free after the session timeout."
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    who = f"Process {pid} died, and its session (alias {report['alias']!r})"
    sys.stderr.write(f"[{now}: WARNING/session reaper] {who} {text}\n")


# --- the server ----------------------------------------------------------------------------------


class Refused(OSError):
    """Raised when a server refuses the credentials, since trying again would not help."""


def end_session(report: Mapping[str, Any], timeout: float) -> bool:
    """End a dead process's session on the server, which frees its locks.

    The report has the ``session`` and its ``password``, the ``servers`` as pairs of host and port,
    the session's ``timeout`` in seconds, ``tls`` (the setting, or None) and ``auth`` (pairs of
    scheme and credentials). For Redis it has ``commands`` in place of the last, each of which the
    server answers with a line; for PostgreSQL a ``database`` to connect to, and the folder of the
    ``library`` that does it.

    A leader that was deposed before the session began does not know it, and calls it over
    (`ZooKeeperServer.revalidateSession`). So a second server is asked.

    :param timeout: seconds for which it tries while the servers are away
    :return: whether the session was alive
    :raises OSError: no server could be asked, or none accepted the credentials
    """
    alive = False
    unknown: set[str] = set()  # to these servers
    trouble = OSError("There was no time to ask a server.")
    deadline = time.monotonic() + timeout
    servers = random.sample(report["servers"], len(report["servers"]))
    while (remaining := deadline - time.monotonic()) > 0:
        for host, port in servers:
            try:
                if "database" in report:
                    return _end_in_postgresql(report)
                with _connect(host, port, report["tls"], min(remaining, ANSWER_SECONDS)) as server:
                    if "commands" in report:
                        return _end_in_redis(server, report["commands"])
                    if not _resume(server, report):
                        unknown.add(f"{host}:{port}")
                        if len(unknown) == min(2, len(servers)):
                            return alive
                        continue
                    alive = True
                    _authenticate(server, report)
                    _ask(server, 1, CLOSE)
                    return True
            except Refused:
                raise
            except OSError as error:
                trouble = error
        time.sleep(_PAUSE_SECONDS)
    if unknown:
        return alive
    raise trouble


def _connect(host: str, port: int, tls: Mapping[str, Any] | None, timeout: float) -> socket.socket:
    if not port:  # the path of a Unix socket
        local = socket.socket(socket.AF_UNIX)
        local.settimeout(timeout)
        local.connect(host)
        return local
    plain = socket.create_connection((host, port), timeout)
    if tls is None:
        return plain
    with plain:  # the wrapped socket has taken its descriptor where all went well
        return tls_context(tls).wrap_socket(plain, server_hostname=host)


def tls_context(tls: Mapping[str, Any]) -> ssl.SSLContext:
    """Read the files of the setting ``TLS``; an OSError says which cannot be used."""
    import ssl  # noqa: PLC0415 - takes a quarter of this program's memory

    context = ssl.create_default_context(cafile=tls.get("ca"))
    if "cert" in tls:
        # Without a password OpenSSL would ask for one on the terminal.
        password = tls.get("key_password", "")
        context.load_cert_chain(tls["cert"], tls.get("key"), password)
    verify = tls.get("verify", True)
    context.check_hostname = verify and tls.get("check_hostname", True)
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    return context


def _end_in_postgresql(report: Mapping[str, Any]) -> bool:
    """End a session in a database; return whether it was alive."""
    sys.path.append(report["library"])
    import psycopg  # noqa: PLC0415 - takes more memory than this program

    session = report["session"], report["password"]
    try:
        with psycopg.connect(report["database"], connect_timeout=2, autocommit=True) as database:
            row = database.execute("SELECT distlock_close(%s, %s)", session).fetchone()
    except psycopg.Error as error:
        raise OSError(str(error)) from error
    return bool(row and row[0])


def _end_in_redis(server: socket.socket, commands: list[str]) -> bool:
    """Send commands, of which the last ends the session; return whether it was alive."""
    line = b""
    with server.makefile("rb") as replies:
        for command in commands:
            server.sendall(command.encode())
            line = replies.readline()
            if not line:
                raise ConnectionError("The server closed the connection.")
            if line.startswith(b"-NOSCRIPT"):  # the next client loads it
                raise ConnectionError("The server has just started.")
            if line.startswith(b"-"):
                raise Refused(line[1:].decode(errors="replace").strip())
    return line == b":1\r\n"


def _resume(server: socket.socket, report: Mapping[str, Any]) -> bool:
    """Resume a session; return False if it is over, or the password is wrong."""
    asked = int(report["timeout"] * 1000)
    server.sendall(pack_connect(asked, report["session"], bytes.fromhex(report["password"])))
    greeting = _receive(server)
    greeting.integer()  # the version of the protocol
    return greeting.integer() > 0  # the timeout that is granted


def _authenticate(server: socket.socket, report: Mapping[str, Any]) -> None:
    """Send the credentials, which servers may want before anything else."""
    for scheme, credentials in report["auth"]:
        shown = pack_text(scheme) + pack_text(credentials)
        _ask(server, AUTH_XID, AUTH, pack_integer(0) + shown)


def _ask(server: socket.socket, xid: int, kind: int, content: bytes = b"") -> Record:
    """Send a request, and return the reply without its header."""
    server.sendall(pack_request(xid, kind, content))
    reply = _receive(server)
    error = reply.fields(REPLY)[2]
    if error:
        raise Refused(f"The server answered with error {error}.")
    return reply


def _receive(server: socket.socket) -> Record:
    return Record(_read(server, *INTEGER.unpack(_read(server, INTEGER.size))))


def _read(server: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length:
        chunk = server.recv(length - len(content))
        if not chunk:
            raise ConnectionError("The server closed the connection.")
        content += chunk
    return content


def main() -> None:
    """Run the program: detach from the caller, and serve the socket at standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        os._exit(0)  # nobody has to wait for the reaper itself
    Reaper(socket.socket(fileno=0)).run()
