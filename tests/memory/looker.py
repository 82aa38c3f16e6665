"""The tree in memory from outside, in the words of kazoo's client that the borrowed tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.kit.looker import TreeLooker

if TYPE_CHECKING:
    from kazoo.protocol.states import ZnodeStat

    from distlock.testing import MemoryTree


class Looker(TreeLooker):
    """Looks at a tree and changes it, over a session of its own."""

    def __init__(self, tree: MemoryTree) -> None:
        self.tree = tree
        self.session_id = tree.open_session(self)
        self.client_id = self.session_id, b""

    def event(self, kind: str, path: str, acl: object) -> None:
        """It sets no watches."""

    def get_children(self, path: str) -> list[str]:
        self.tree.reap_when_due()
        return self.tree.children(path)

    def exists(self, path: str) -> ZnodeStat | None:
        self.tree.reap_when_due()
        return super().exists(path)

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        data, stat = self.tree.read(path)
        return data or b"", stat

    def set(self, path: str, data: bytes) -> None:
        self.tree.write(path, data)

    def make(self, path: str, data: bytes | None, *, ephemeral: bool, sequence: bool) -> str:
        owner = self.session_id if ephemeral else 0
        return self.tree.create(path, data, owner=owner, sequential=sequence)

    def remove(self, path: str) -> None:
        self.tree.delete(path)

    def command(self, word: bytes) -> str:
        """Answer as a server does which sessions watch what."""
        assert word == b"wchp", word
        lines: list[Any] = []
        for path, ids in self.tree.watchers().items():
            lines += [path, *(f"\t0x{number:x}" for number in ids)]
        return "\n".join(lines)
