"""The four requests of every hold, as bytes in few steps. kazoo serializes all others.

Each call of a function would count in every cycle (`benchmarks.calls`), so they pack the numbers of
`distlock.jute` themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock.engine.kazoo import ZnodeStat, serialization
from distlock.jute import BOOLEANS, INTEGER, STAT, pack_acl, read_buffer

if TYPE_CHECKING:
    from collections.abc import Iterable


class AccessList(list[Any]):
    """An ACL, which is the same in all requests of a client."""

    def __init__(self, acl: Iterable[Any]) -> None:
        super().__init__(acl)
        #: The list in a message.
        self.packed = pack_acl((one.perms, one.id.scheme, one.id.id) for one in self)


class Create2(serialization.Create2):  # type: ignore[misc]
    """Create a node, and answer with its path and stat; its `acl` is an `AccessList`."""

    def serialize(self) -> bytes:
        path, data, acl, flags = self
        content = path.encode()
        head = INTEGER.pack(len(content)) + content + INTEGER.pack(len(data))
        packed: bytes = head + data + acl.packed + INTEGER.pack(flags)
        return packed

    @classmethod
    def deserialize(cls, content: bytes, offset: int) -> tuple[str, Any]:
        (length,) = INTEGER.unpack_from(content, offset)
        end = offset + INTEGER.size + length
        path = content[offset + INTEGER.size : end].decode()
        return path, ZnodeStat._make(STAT.unpack_from(content, end))


def _path_and_watch(request: Any) -> bytes:
    content: bytes = request.path.encode()
    return INTEGER.pack(len(content)) + content + BOOLEANS[request.watcher is not None]


class GetChildren(serialization.GetChildren):  # type: ignore[misc]
    """List the names of a node's children."""

    serialize = _path_and_watch

    @classmethod
    def deserialize(cls, content: bytes, offset: int) -> list[str]:
        names = []
        (count,) = INTEGER.unpack_from(content, offset)
        offset += INTEGER.size
        for _ in range(count):
            (length,) = INTEGER.unpack_from(content, offset)
            offset += INTEGER.size
            names.append(content[offset : offset + length].decode())
            offset += length
        return names


class GetData(serialization.GetData):  # type: ignore[misc]
    """Read a node: its data and stat. No data, as other clients may write, are empty ones."""

    serialize = _path_and_watch

    @classmethod
    def deserialize(cls, content: bytes, offset: int) -> tuple[bytes, Any]:
        data, end = read_buffer(content, offset)
        return data or b"", ZnodeStat._make(STAT.unpack_from(content, end))


class Delete(serialization.Delete):  # type: ignore[misc]
    """Delete a node that has no children."""

    def serialize(self) -> bytes:
        content: bytes = self.path.encode()
        return INTEGER.pack(len(content)) + content + INTEGER.pack(self.version)
