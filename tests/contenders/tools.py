"""Tools of the tests of contenders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock import zk_lock
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection, settle

if TYPE_CHECKING:
    from concurrent.futures import Future

    from distlock.contenders.batch import Batch

KEY = "key"


def members(tree: Tree, using: str = "default") -> int:
    """How many of this process wait for a turn at the key."""
    batch = _batch(tree, using)
    return 0 if batch is None else sum(not member.granted for member in batch.line.copy())


def _batch(tree: Tree, using: str) -> Batch | None:
    return session_for(using).batches.get(tree.path(KEY))


def _stand(tree: Tree, using: str) -> bool:
    """Whether all who are to stand in line for those who wait for turns have their nodes."""
    batch = _batch(tree, using)
    if batch is None:
        return True
    nodes = batch._wanted()  # none yet, where somebody has just entered
    return bool(nodes) and all(batch_node.node for batch_node in nodes)


def await_seats(tree: Tree, number: int, using: str = "default") -> None:
    """Wait until so many wait for a turn at the key."""
    eventually(lambda: members(tree, using) == number, PATIENCE, f"{number} who wait for a turn")


def quiet(*aliases: str) -> None:
    """Wait until every request has its answer."""
    for using in aliases or ("default",):
        settle(await_connection(using))


class Waiter:
    """A thread that waits for the key behind all who wait so far."""

    def __init__(
        self, tree: Tree, make_owner: MakeOwner, using: str = "default", **options: Any
    ) -> None:
        self.owner: Owner = make_owner()
        self.lock = zk_lock(KEY, using=using, **options)
        line, waiting = len(tree.line(KEY)), members(tree, using)
        self.granted: Future[bool] = self.owner.submit(self.lock.acquire, timeout=3 * PATIENCE)
        eventually(
            lambda: len(tree.line(KEY)) > line or members(tree, using) > waiting,
            PATIENCE,
            "one more who waits",
        )
        eventually(lambda: _stand(tree, using), PATIENCE, "a node for those who wait")
        quiet(using)

    @property
    def token(self) -> int:
        """The fencing token, once it has the lock."""
        assert self.granted.result(PATIENCE)
        return int(self.owner.now(self._hold).token)

    def release(self) -> None:
        assert self.granted.result(PATIENCE)
        self.owner.now(self.lock.release)

    def _hold(self) -> Any:
        with self.lock as hold:
            return hold


def served(waiters: dict[str, Waiter]) -> str:
    """Let all have the lock one after the other, and return their names in that order."""
    order = ""
    while waiters:
        name = eventually(
            lambda: next((name for name, one in waiters.items() if one.granted.done()), ""),
            PATIENCE,
        )
        assert sum(one.granted.done() for one in waiters.values()) == 1
        waiters.pop(name).release()
        order += name
    return order
