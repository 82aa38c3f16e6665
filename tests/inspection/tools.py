"""Tools of the inspection tests: nodes of others, and what is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from kazoo.security import make_digest_acl

from distlock.inspection.state import Contender, Lock, Snapshot
from distlock.inspection.tree import look, snapshot
from tests.kit.tools import PATIENCE, Tree

#: Somebody who alone may do anything with a node that is to be closed to us.
NOBODY = ("nobody", "secret")
ONLY_NOBODY = [make_digest_acl(*NOBODY, all=True)]


def found(**options: Any) -> Snapshot:
    """A snapshot that has all the time it needs."""
    return snapshot(**{"depth": None, "budget": PATIENCE, **options})


def the_lock(key: str) -> Lock:
    """The one lock of a key."""
    (lock,) = look(key, budget=PATIENCE).locks
    return lock


def names(contenders: tuple[Contender, ...]) -> list[str]:
    """The names of the nodes."""
    return [one.participant.path.rpartition("/")[2] for one in contenders]


def stand(
    tree: Tree, key: str, kind: str = "lock-", data: bytes | str = b"10.0.0.7", *, under: str = ""
) -> str:
    """Make a contender's node as Curator does, or one of an owner of distlock's."""
    if isinstance(data, str):
        data = json.dumps({"v": 1, "owner": data}).encode()
    path = f"{tree.path(key)}{under}/_c_{uuid4()}-{kind}"
    made = tree.client.create(path, data, ephemeral=True, sequence=True, makepath=True)
    return str(made)


def draw_ticket(tree: Tree, line: str) -> None:
    """Let a Celery task wait for its turn, as its worker does."""
    ticket = f"{tree.namespace}/@tickets/{line}/task-"
    tree.client.create(ticket, b"{}", sequence=True, makepath=True)


@contextmanager
def cleared(tree: Tree) -> Iterator[None]:
    """Remove at the end what a test has put into the tree."""
    try:
        yield
    finally:
        tree.client.add_auth("digest", ":".join(NOBODY))
        tree.client.delete(tree.namespace, recursive=True)
