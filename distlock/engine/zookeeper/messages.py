"""The four requests of every hold, as bytes in few steps. kazoo serializes all others.

Their layout is that of ZooKeeper's ``zookeeper.jute``: numbers are big-endian, and the length
precedes a text.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat

if TYPE_CHECKING:
    from collections.abc import Iterable

_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_WATCH: Final = {True: b"\1", False: b"\0"}


def _text(value: str) -> bytes:
    content = value.encode()
    return _INT.pack(len(content)) + content


class AccessList(list[Any]):
    """An ACL, which is the same in all requests of a client."""

    def __init__(self, acl: Iterable[Any]) -> None:
        super().__init__(acl)
        parts = [_INT.pack(len(self))]
        for one in self:
            parts += _INT.pack(one.perms), _text(one.id.scheme), _text(one.id.id)
        #: The list in a message.
        self.packed = b"".join(parts)


class Create2(serialization.Create2):  # type: ignore[misc]
    """Create a node, and answer with its path and stat; its `acl` is an `AccessList`."""

    def serialize(self) -> bytes:
        path, data, acl, flags = self
        content = path.encode()
        head = _INT.pack(len(content)) + content + _INT.pack(len(data))
        packed: bytes = head + data + acl.packed + _INT.pack(flags)
        return packed

    @classmethod
    def deserialize(cls, content: bytes, offset: int) -> tuple[str, Any]:
        (length,) = _INT.unpack_from(content, offset)
        end = offset + _INT.size + length
        path = content[offset + _INT.size : end].decode()
        return path, ZnodeStat._make(_STAT.unpack_from(content, end))


def _path_and_watch(request: Any) -> bytes:
    content: bytes = request.path.encode()
    return _INT.pack(len(content)) + content + _WATCH[request.watcher is not None]


class GetChildren(serialization.GetChildren):  # type: ignore[misc]
    """List the names of a node's children."""

    serialize = _path_and_watch

    @classmethod
    def deserialize(cls, content: bytes, offset: int) -> list[str]:
        names = []
        (count,) = _INT.unpack_from(content, offset)
        offset += _INT.size
        for _ in range(count):
            (length,) = _INT.unpack_from(content, offset)
            offset += _INT.size
            names.append(content[offset : offset + length].decode())
            offset += length
        return names


class GetData(serialization.GetData):  # type: ignore[misc]
    """Read a node: its data and stat. No data, as other clients may write, are empty ones."""

    serialize = _path_and_watch

    @classmethod
    def deserialize(cls, content: bytes, offset: int) -> tuple[bytes, Any]:
        data, stat = super().deserialize(content, offset)
        return data or b"", stat


class Delete(serialization.Delete):  # type: ignore[misc]
    """Delete a node that has no children."""

    def serialize(self) -> bytes:
        content: bytes = self.path.encode()
        return _INT.pack(len(content)) + content + _INT.pack(self.version)
