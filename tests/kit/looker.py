"""A tree from outside, in the words of kazoo's client that the borrowed tests use."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kazoo.exceptions import NodeExistsError, NoNodeError

if TYPE_CHECKING:
    from kazoo.protocol.states import ZnodeStat


class TreeLooker:
    """Looks at a tree and changes it; a subclass knows where the tree is."""

    #: As kazoo tells them.
    hosts = (("127.0.0.1", 1),)

    def get_children(self, path: str) -> list[str]:
        raise NotImplementedError

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        raise NotImplementedError

    def make(self, path: str, data: bytes | None, *, ephemeral: bool, sequence: bool) -> str:
        raise NotImplementedError

    def remove(self, path: str) -> None:
        raise NotImplementedError

    def exists(self, path: str) -> ZnodeStat | None:
        with suppress(NoNodeError):
            return self.get(path)[1]
        return None

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
    ) -> str:
        if makepath:
            self.ensure_path(path.rpartition("/")[0])
        return self.make(path, data, ephemeral=ephemeral, sequence=sequence)

    def ensure_path(self, path: str) -> None:
        names = path.split("/")
        for depth in range(2, len(names) + 1):
            with suppress(NodeExistsError):
                self.create("/".join(names[:depth]))

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        if recursive:
            for name in self.get_children(path):
                self.delete(f"{path}/{name}", recursive=True)
        self.remove(path)
        return True
