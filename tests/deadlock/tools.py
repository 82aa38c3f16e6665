"""Tools of the deadlock tests: owners that wait in a circle, and one in it that is made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from distlock import DeadlockDetected, Mutex
from distlock.locks.deadlocks import WAITS
from tests.inspection.tools import stand
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Owner, Tree

#: `DEADLOCK_AFTER` of most tests, in seconds.
AFTER = 0.4

Waits: TypeAlias = "list[Future[bool]]"


def tie(
    tree: Tree,
    owners: Sequence[Owner],
    held: Sequence[Any],
    wanted: Sequence[Any],
    timeout: float = 2 * PATIENCE,
) -> Waits:
    """Let each owner take one lock, and then wait for another one; the last owner comes last."""
    for owner, lock in zip(owners, held, strict=True):
        assert owner.now(lock.acquire)
    return [wait(tree, owner, lock, timeout) for owner, lock in zip(owners, wanted, strict=True)]


def wait(tree: Tree, owner: Owner, lock: Mutex, timeout: float = 2 * PATIENCE) -> Future[bool]:
    """Let an owner wait in the line of a lock."""
    before = len(tree.line(lock.key))
    waits = owner.submit(lock.acquire, timeout=timeout)
    tree.await_line(lock.key, before + 1)
    return waits


def given_way(waits: Future[bool]) -> DeadlockDetected:
    """Return the error of a wait that had to give way."""
    with pytest.raises(DeadlockDetected) as raised:
        waits.result(PATIENCE)
    return raised.value


def notices(tree: Tree) -> list[str]:
    """The owners who say where they wait."""
    return tree.children(f"{tree.namespace}/{WAITS}")


def await_notices(tree: Tree, number: int) -> None:
    """Wait until so many say where they wait."""
    eventually(lambda: len(notices(tree)) == number, PATIENCE, f"{number} notices")


class Other:
    """Somebody who holds "b", and waits for "a" as far as it says so."""

    def __init__(self, tree: Tree, kind: str = "lock-") -> None:
        self.tree = tree
        self.id = uuid4().hex
        self.holds = stand(tree, "b", kind, data=self.id)
        self.waits = ""

    def wait(self) -> None:
        self.waits = stand(self.tree, "a", data=self.id)

    def notify(self, said: object = None, *, owner: str = "") -> None:
        waits = self.waits.removeprefix(f"{self.tree.namespace}/")
        data = json.dumps({"v": 1, "waits": waits}) if said is None else json.dumps(said)
        path = f"{self.tree.namespace}/{WAITS}/{owner or self.id}"
        self.tree.client.create(path, data.encode(), ephemeral=True, makepath=True)

    def stop_waiting(self) -> None:
        self.tree.client.delete(self.waits)

    def release(self) -> None:
        self.tree.client.delete(self.holds)
