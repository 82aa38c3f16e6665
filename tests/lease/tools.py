"""Tools of the tests of persistent leases."""

from __future__ import annotations

import json
from typing import Any

from kazoo.exceptions import NoNodeError

from distlock.keys.templates import znode_name
from distlock.lease.persistent import PersistentLease
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree

#: For leases that are not to end while a test runs, in seconds.
LONG = 600.0
#: For leases whose end a test waits for, in seconds.
SHORT = 0.2


def node_path(tree: Tree, key: str) -> str:
    """The path of the node of a lease."""
    return f"{tree.namespace}/@leases/{znode_name(key)}"


def said(tree: Tree, key: str) -> dict[str, Any] | None:
    """What the node of a lease says, None where there is no node."""
    try:
        data: dict[str, Any] = json.loads(tree.client.get(node_path(tree, key))[0])
    except NoNodeError:
        return None
    return data


def owner_of(tree: Tree, key: str) -> str | None:
    """The owner whom the node names, its time being up or not."""
    data = said(tree, key)
    return data["owner"] if data else None


def await_end(lease: PersistentLease) -> None:
    """Wait until nobody has the lease, by the server's clock."""
    eventually(lambda: lease.holder() is None, PATIENCE, "the end of a lease")
