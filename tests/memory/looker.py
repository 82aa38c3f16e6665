"""The tree in memory from outside, in the words of kazoo's client that the borrowed tests use."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NodeExistsError, NoNodeError

if TYPE_CHECKING:
    from kazoo.protocol.states import ZnodeStat

    from distlock.testing import MemoryTree


class Looker:
    """Looks at a tree and changes it, over a session of its own."""

    def __init__(self, tree: MemoryTree) -> None:
        self.tree = tree
        self.session_id = tree.open_session(self)
        #: As kazoo tells them.
        self.hosts = [("127.0.0.1", 1)]
        self.client_id = self.session_id, b""

    def event(self, kind: str, path: str, acl: object) -> None:
        """It sets no watches."""

    def get_children(self, path: str) -> list[str]:
        self.tree.reap_when_due()
        return self.tree.children(path)

    def exists(self, path: str) -> ZnodeStat | None:
        self.tree.reap_when_due()
        with suppress(NoNodeError):
            return self.tree.read(path)[1]
        return None

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        return self.tree.read(path)

    def set(self, path: str, data: bytes) -> None:
        self.tree.write(path, data)

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
    ) -> str:
        if makepath:
            self.ensure_path(path.rpartition("/")[0])
        owner = self.session_id if ephemeral else 0
        return self.tree.create(path, data, owner=owner, sequential=sequence)

    def ensure_path(self, path: str) -> None:
        names = path.split("/")
        for depth in range(2, len(names) + 1):
            with suppress(NodeExistsError):
                self.tree.create("/".join(names[:depth]))

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        if recursive:
            for name in self.tree.children(path):
                self.delete(f"{path}/{name}", recursive=True)
        self.tree.delete(path)
        return True

    def command(self, word: bytes) -> str:
        """Answer as a server does which sessions watch what."""
        assert word == b"wchp", word
        lines: list[Any] = []
        for path, ids in self.tree.watchers().items():
            lines += [path, *(f"\t0x{number:x}" for number in ids)]
        return "\n".join(lines)
