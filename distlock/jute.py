"""ZooKeeper's wire: the fields of messages, as its jute writes them.

The client, the embedded server and the session reaper share it. The reaper is a small program, so
this imports the standard library only. kazoo serializes the requests that no hold sends.

Source: ZooKeeper's ``BinaryInputArchive``, ``zookeeper.jute`` and ``ZooDefs.OpCode``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

_T = TypeVar("_T")

#: A number of 32 bits, such as a length.
INTEGER: Final = struct.Struct("!i")
LONG: Final = struct.Struct("!q")
#: The head of a reply: the number of the request, the transaction that the server has seen last,
#: an error or 0.
REPLY: Final = struct.Struct("!iqi")
#: A node's stat, in the order of kazoo's ``ZnodeStat``.
STAT: Final = struct.Struct("!qqqqiiiqiiq")
#: The length of what follows, the number of the request, and its type.
REQUEST: Final = struct.Struct("!iii")
#: The head of a watch event, after that of a reply: type, state, length of the path.
EVENT: Final = REQUEST
_CONNECT: Final = struct.Struct("!iqiq")
_GREETING: Final = struct.Struct("!iiq")
_STEP: Final = struct.Struct("!i?i")
_BOOLEAN: Final = struct.Struct("!?")
BOOLEANS: Final = (b"\0", b"\1")

# The types of requests that several parts know.
CLOSE: Final = -11
AUTH: Final = 100
#: The number of a request with credentials.
AUTH_XID: Final = -4


class Malformed(ConnectionError):
    """A message is not what the protocol says."""


# --- reading -------------------------------------------------------------------------------------


def read_buffer(message: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the bytes at a place, None for none, and where they end.

    :raises Malformed: the message ends within them
    """
    try:
        (length,) = INTEGER.unpack_from(message, at)
    except struct.error:
        raise Malformed("a message ends within a field") from None
    at += INTEGER.size
    if length == -1:
        return None, at
    if not 0 <= length <= len(message) - at:
        raise Malformed("a message ends within a field")
    return message[at : at + length], at + length


class Record:
    """Reads the fields of one message, from the first to the last; an integer has 32 bits.

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
        return cast("bool", self.fields(_BOOLEAN)[0])

    def integer(self) -> int:
        return cast("int", self.fields(INTEGER)[0])

    def long(self) -> int:
        return cast("int", self.fields(LONG)[0])

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        try:
            values = form.unpack_from(self._message, self._at)
        except struct.error:
            raise Malformed("a message ends within a field") from None
        self._at += form.size
        return values

    def buffer(self) -> bytes | None:
        """Read bytes; None is not the same as empty ones."""
        value, self._at = read_buffer(self._message, self._at)
        return value

    def text(self) -> str:
        """Read a text; none is as good as an empty one."""
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def texts(self) -> list[str]:
        return self._several(self.text)

    def acl(self) -> list[tuple[int, str, str]]:
        """Read an access list: permissions, scheme and name of each entry."""
        return self._several(lambda: (self.integer(), self.text(), self.text()))

    def step(self) -> tuple[int, bool]:
        """Read what comes next in a transaction: its type, and whether it is the end."""
        kind, end, _ = self.fields(_STEP)
        return kind, end

    def _several(self, read: Callable[[], _T]) -> list[_T]:
        return [read() for _ in range(self.integer())]


# --- writing -------------------------------------------------------------------------------------


pack_integer: Final = INTEGER.pack
pack_boolean: Final = _BOOLEAN.pack


def pack_buffer(data: bytes | None) -> bytes:
    """Write bytes, or None. This is also how a message is sent: its length comes first."""
    return INTEGER.pack(-1) if data is None else INTEGER.pack(len(data)) + data


def pack_text(text: str) -> bytes:
    content = text.encode()
    return INTEGER.pack(len(content)) + content


def pack_texts(texts: Iterable[str]) -> bytes:
    return _pack_several([pack_text(text) for text in texts])


def pack_acl(acl: Iterable[tuple[int, str, str]]) -> bytes:
    """Write an access list; see `Record.acl`."""
    return _pack_several(
        [INTEGER.pack(may) + pack_text(scheme) + pack_text(name) for may, scheme, name in acl]
    )


def pack_step(kind: int, error: int, *, end: bool = False) -> bytes:
    """Write what comes next in a transaction, or in the reply to one."""
    return _STEP.pack(kind, end, error)


def pack_request(xid: int, kind: int, content: bytes = b"") -> bytes:
    """Write a whole request: its length, its number, its type and the rest."""
    return REQUEST.pack(len(content) + 8, xid, kind) + content


def pack_reply(xid: int, zxid: int, error: int = 0, body: bytes = b"") -> bytes:
    """Write a whole reply: its length, its header and the rest."""
    return pack_buffer(REPLY.pack(xid, zxid, error) + body)


def pack_connect(timeout: int, session_id: int, password: bytes) -> bytes:
    """Write the first message of a connection, which asks for a session.

    :param timeout: in milliseconds
    """
    request = _CONNECT.pack(0, 0, timeout, session_id) + pack_buffer(password)
    return pack_buffer(request + pack_boolean(False))


def pack_greeting(timeout: int, session_id: int, password: bytes) -> bytes:
    """Write the reply to the first message, without its length."""
    return _GREETING.pack(0, timeout, session_id) + pack_buffer(password)


def _pack_several(packed: list[bytes]) -> bytes:
    return INTEGER.pack(len(packed)) + b"".join(packed)
