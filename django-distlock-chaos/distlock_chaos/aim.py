"""Finds the processes that hold and wait for a lock, by their nodes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from distlock.exceptions import LockUnavailable
from distlock.keys.templates import znode_name

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

    from .fleet import Fleet
    from .tree import Tree

#: For how long it looks for somebody to aim at, in seconds.
AIM_SECONDS: Final = 3.0
#: How often it looks, in seconds.
LOOK_SECONDS: Final = 0.005


@dataclass(frozen=True)
class Standing:
    """A contender: one node in the queue of a key."""

    key: str
    path: str
    pid: int
    thread: str


class Aim:
    """Reads queues from any server that answers.

    :param recipe: decides where the nodes are; of a semaphore, those of the permits
    """

    def __init__(self, tree: Tree, recipe: str) -> None:
        self._tree = tree
        self._recipe = recipe

    def __enter__(self) -> Self:
        self._tree.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._tree.__exit__()

    def queue(self, key: str) -> list[Standing]:
        """Return the contenders for `key` in order, the holder first; distlock's or kazoo's."""
        path = self._path(key)
        paths = [f"{path}/{name}" for name in self._names(path)]
        standing = []
        for node in [path] if self._recipe == "lease" else paths:
            if (data := self._tree.data(node)) is not None:
                who = json.loads(data)
                standing.append(Standing(key, node, who["pid"], who["worker"]))
        return standing

    def await_queue(self, key: str, pids: Sequence[int], seconds: float) -> bool:
        """Wait until exactly these processes are in the queue of `key`; return whether they are."""
        return self._await(key, lambda found: found == list(pids), seconds)

    def await_absence(self, key: str, pid: int, seconds: float) -> bool:
        """Wait until a process is not in the queue of `key`; return whether it is not."""
        return self._await(key, lambda found: pid not in found, seconds)

    def _await(self, key: str, condition: Callable[[list[int]], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if condition([standing.pid for standing in self.queue(key)]):
                    return True
            except LockUnavailable:
                continue  # it has waited already, or the next attempt does
            time.sleep(LOOK_SECONDS)
        return False

    def holder(
        self, keys: Sequence[str], chance: random.Random, fleet: Fleet, linger: float
    ) -> Standing | None:
        """Find a holder, and let it hold on for a while: most holds are over in an instant.

        :param linger: for how many seconds
        """

        def find(key: str) -> Standing | None:
            first = self.queue(key)[:1]
            worker = fleet.with_pid(first[0].pid) if first else None
            if worker is None:
                return None
            worker.order("linger", linger)
            time.sleep(0.02)
            return first[0] if self.queue(key)[:1] == first else None

        return self._find(keys, chance, find)

    def waiter(self, keys: Sequence[str], chance: random.Random) -> Standing | None:
        """Find somebody who waits in a process's main thread."""

        def find(key: str) -> Standing | None:
            waiting = [one for one in self.queue(key)[1:] if one.thread == "MainThread"]
            return waiting[0] if waiting else None

        return self._find(keys, chance, find)

    def delete_queue(self, key: str) -> bool:
        """Delete a queue and its parent in one transaction; return whether they were there."""
        return self.delete(self._path(key))

    def delete(self, path: str) -> bool:
        """Delete a node and its children, as an operator may; return whether it was there."""
        for _ in range(20):  # somebody may come or go meanwhile
            if self._tree.delete([*(f"{path}/{name}" for name in self._names(path)), path]):
                return True
            if self._tree.data(path) is None:
                return False
        return False

    def _find(
        self,
        keys: Sequence[str],
        chance: random.Random,
        find: Callable[[str], Standing | None],
    ) -> Standing | None:
        deadline = time.monotonic() + AIM_SECONDS
        while time.monotonic() < deadline:
            try:
                if (found := find(chance.choice(keys))) is not None:
                    return found
            except LockUnavailable:
                time.sleep(0.1)
        return None

    def _names(self, path: str) -> list[str]:
        return sorted(self._tree.names(path), key=lambda name: name[-10:])

    def _path(self, key: str) -> str:
        match self._recipe:
            case "lease":
                return f"{self._tree.namespace}/@leases/{znode_name(key)}"
            case "semaphore":
                return f"{self._tree.namespace}/{znode_name(key)}/leases"
            case _:
                return f"{self._tree.namespace}/{znode_name(key)}"
