"""The data that the lock protects: two registers a key, one naive, one fenced, both counted up.

The *naive* register takes every write. The *fenced* one takes tokens: whoever begins to work claims
it, and from then on nobody with a smaller token can read or write it. (A fence that only rises with
writes would let a former holder write between the reading and the writing of the next one.)

The registers live in the harness's process and stamp each operation themselves, so the history
tells when a write took effect, not when somebody meant to write. A line of JSON over a Unix socket
is one operation: no file lock that a stopped process could keep.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

    from .history import History


@dataclass(slots=True)
class _Cell:
    naive: int = 0
    fenced: int = 0
    #: The era and the token.
    fence: tuple[int, int] = (0, 0)


class Registers:
    """The server of the registers, in threads of the harness."""

    def __init__(self, path: Path, history: History) -> None:
        self.path = path
        self._history = history
        self._lock = threading.Lock()
        self._cells: dict[str, _Cell] = defaultdict(_Cell)
        self._era = 0
        #: Call → the era of its first operation.
        self._eras: dict[str, int] = {}
        self._server = _Server(str(path), _Connection)
        self._server.registers = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="registers", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def begin_era(self) -> None:
        """Take every token from now on for a greater one than all before: ZooKeeper begins anew."""
        with self._lock:
            self._era += 1

    def do(self, operation: dict[str, Any]) -> dict[str, Any]:
        """Carry out one operation, and write it into the history."""
        with self._lock:
            cell = self._cells[operation["key"]]
            era = self._eras.setdefault(operation["call"], self._era)
            accepted = (era, operation["token"]) >= cell.fence
            answer = {"naive": cell.naive, "fenced": cell.fenced, "accepted": accepted}
            if accepted and operation["do"] != "read":
                cell.fence = era, operation["token"]
            if operation["do"] == "write":
                cell.naive = operation["naive"]
                if accepted:
                    cell.fenced = operation["fenced"]
            self._history.say(
                operation["do"],
                key=operation["key"],
                call=operation["call"],
                token=operation["token"],
                era=era,
                accepted=accepted,
                found=[answer["naive"], answer["fenced"]],
                wrote=[operation.get("naive"), operation.get("fenced")],
            )
        return answer


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    registers: Registers


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(OSError):  # a killed worker takes no answer
            for line in self.rfile:
                answer = self.server.registers.do(json.loads(line))
                self.wfile.write(json.dumps(answer).encode() + b"\n")


class Client(threading.local):
    """The registers as a worker sees them; each thread has a connection of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = 0

    def claim(self, key: str, call: str, token: int) -> tuple[int, int]:
        """Return the values of both registers; from now on a smaller token is refused.

        A refused claim is no concern of the naive register, so it is not told.
        """
        answer = self._ask(do="claim", key=key, call=call, token=token)
        return answer["naive"], answer["fenced"]

    def read(self, key: str, call: str, token: int) -> None:
        """Read both registers, in company with other readers."""
        self._ask(do="read", key=key, call=call, token=token)

    def write(self, key: str, call: str, token: int, naive: int, fenced: int) -> None:
        """Write the naive register, and the fenced one if it takes the token."""
        self._ask(do="write", key=key, call=call, token=token, naive=naive, fenced=fenced)

    def _ask(self, **operation: Any) -> dict[str, Any]:
        if self._pid != os.getpid():  # the first use, or a forked child's
            self._pid = os.getpid()
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(self._path)
            self._answers = self._socket.makefile("rb")
        self._socket.sendall(json.dumps(operation).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer
