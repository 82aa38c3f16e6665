"""Reads and writes the fields of messages, as ZooKeeper's jute does.

Source: ZooKeeper's ``BinaryInputArchive`` and ``zookeeper.jute``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

from kazoo.security import ACL, Id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kazoo.protocol.states import ZnodeStat

_T = TypeVar("_T")

_BOOLEAN: Final = struct.Struct("!?")
_INTEGER: Final = struct.Struct("!i")
_LONG: Final = struct.Struct("!q")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_REPLY_HEADER: Final = struct.Struct("!iqi")
_STEP_HEADER: Final = struct.Struct("!i?i")
_GREETING: Final = struct.Struct("!iiq")


class Malformed(Exception):
    """A message is not what the protocol says."""


class Record:
    """Reads the fields of one message, from the first to the last.

    :raises Malformed: the message ends within a field, or a text is not UTF-8; so all methods do
    """

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether all has been read."""
        return self._at == len(self._message)

    def boolean(self) -> bool:
        """Read a boolean."""
        return bool(self._number(_BOOLEAN))

    def integer(self) -> int:
        """Read a number of 32 bits."""
        return self._number(_INTEGER)

    def long(self) -> int:
        """Read a number of 64 bits."""
        return self._number(_LONG)

    def buffer(self) -> bytes | None:
        """Read bytes; None is not the same as empty ones."""
        length = self.integer()
        return None if length == -1 else self._take(length)

    def text(self) -> str:
        """Read a text; none is as good as an empty one."""
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def texts(self) -> list[str]:
        """Read several texts."""
        return self._several(self.text)

    def acl(self) -> list[ACL]:
        """Read an access list."""
        return self._several(lambda: ACL(self.integer(), Id(self.text(), self.text())))

    def step(self) -> tuple[int, bool]:
        """Read what comes next in a transaction: its type, and whether it is the end."""
        kind, end, _ = self.integer(), self.boolean(), self.integer()
        return kind, end

    def _several(self, read: Callable[[], _T]) -> list[_T]:
        return [read() for _ in range(self.integer())]

    def _number(self, form: struct.Struct) -> int:
        try:
            number: int = form.unpack_from(self._message, self._at)[0]
        except struct.error:
            raise Malformed("a message ends within a field") from None
        self._at += form.size
        return number

    def _take(self, count: int) -> bytes:
        taken = self._message[self._at : self._at + count]
        if len(taken) != count:
            raise Malformed("a message ends within a field")
        self._at += count
        return taken


def pack_integer(number: int) -> bytes:
    """Write a number of 32 bits."""
    return _INTEGER.pack(number)


def pack_boolean(value: bool) -> bytes:
    """Write a boolean."""
    return _BOOLEAN.pack(value)


def pack_buffer(data: bytes | None) -> bytes:
    """Write bytes, or None."""
    return _INTEGER.pack(-1) if data is None else _INTEGER.pack(len(data)) + data


def pack_text(text: str) -> bytes:
    """Write a text."""
    return pack_buffer(text.encode())


def pack_texts(texts: Iterable[str]) -> bytes:
    """Write several texts."""
    return _pack_several([pack_text(text) for text in texts])


def pack_acl(acl: Iterable[ACL]) -> bytes:
    """Write an access list."""
    return _pack_several(
        [_INTEGER.pack(perms) + pack_text(who.scheme) + pack_text(who.id) for perms, who in acl]
    )


def pack_stat(stat: ZnodeStat) -> bytes:
    """Write a node's stat."""
    return _STAT.pack(*stat)


def pack_step(kind: int, error: int, *, end: bool = False) -> bytes:
    """Write what comes next in the reply to a transaction."""
    return _STEP_HEADER.pack(kind, end, error)


def pack_greeting(timeout: int, session_id: int, password: bytes) -> bytes:
    """Write the reply to the first message of a connection."""
    return _GREETING.pack(0, timeout, session_id) + pack_buffer(password)


def pack_message(xid: int, zxid: int, error: int = 0, body: bytes = b"") -> bytes:
    """Write a whole reply: its length, its header and the rest."""
    return pack_buffer(_REPLY_HEADER.pack(xid, zxid, error) + body)


def _pack_several(packed: list[bytes]) -> bytes:
    return _INTEGER.pack(len(packed)) + b"".join(packed)
