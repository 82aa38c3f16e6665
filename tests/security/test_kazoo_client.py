"""`kazoo_client` over TLS, and with credentials: its nodes have the ACL of the settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from queue import Queue
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from distlock import kazoo_client, zk_lock
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import raw_client
from tests.kit.tools import PATIENCE
from tests.security.conftest import Configure, SecureServer

pytestmark = pytest.mark.usefixtures("as_shipped")

AUTH = [("digest", "shop:s3cr3t-of-the-shop")]


def test_over_tls(secure_server: SecureServer, configure: Configure, namespace: str) -> None:
    configure(HOSTS=secure_server.tls, TLS=secure_server.tls_options())
    zk = kazoo_client()
    path = f"{namespace}-large"
    large = b"x" * 900_000
    seen: Queue[Any] = Queue()
    zk.create(path)
    zk.get(path, watch=seen.put)
    with zk_lock("key") as hold:
        asked = [zk.set_async(path, large), *(zk.get_async(path) for _ in range(5))]
        assert [one.get(timeout=PATIENCE)[0] for one in asked[1:]] == [large] * 5
        assert seen.get(timeout=PATIENCE).path == path
        assert zk.get(hold.path)[1].ephemeralOwner == zk.client_id[0]
    zk.delete(path)


def create_in_transaction(zk: KazooClient, path: str) -> None:
    transaction = zk.transaction()
    transaction.create(path)
    transaction.create(f"{path}/deep")
    assert transaction.commit() == [path, f"{path}/deep"]


RECIPES: dict[str, Callable[[KazooClient, str], Any]] = {
    "create": lambda zk, path: zk.create(path),
    "ensure_path": lambda zk, path: zk.ensure_path(f"{path}/deep"),
    "makepath": lambda zk, path: zk.create(f"{path}/deep", makepath=True, ephemeral=True),
    "transaction": create_in_transaction,
    "Party": lambda zk, path: zk.Party(path, "me").join(),
    "Queue": lambda zk, path: zk.Queue(path).put(b"one"),
    "LockingQueue": lambda zk, path: zk.LockingQueue(path).put_all([b"one", b"two"]),
    "Counter": lambda zk, path: zk.Counter(path) + 1,
    "Barrier": lambda zk, path: zk.Barrier(path).create(),
    "Lock": lambda zk, path: zk.Lock(path, "me").acquire(),
    "Semaphore": lambda zk, path: zk.Semaphore(path, "me").acquire(),
    "Lease": lambda zk, path: zk.NonBlockingLease(path, timedelta(minutes=1)),
}


def nodes_below(zk: KazooClient, path: str) -> list[str]:
    return [path, *(n for c in zk.get_children(path) for n in nodes_below(zk, f"{path}/{c}"))]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_node_of_a_recipe_belongs_to_the_creator(
    recipe: Callable[[KazooClient, str], Any],
    zookeeper: ZooKeeper,
    configure: Configure,
    namespace: str,
) -> None:
    configure(HOSTS=zookeeper.hosts, AUTH=AUTH, ACL="creator")
    zk = kazoo_client()
    path = f"{namespace}-recipe"
    recipe(zk, path)
    nodes = nodes_below(zk, path)
    for node in nodes:
        ((owner),) = zk.get_acls(node)[0]
        assert (owner.id.scheme, owner.id.id.split(":")[0]) == ("digest", "shop")
        assert owner.acl_list == ["ALL"]
    with raw_client(zookeeper.hosts) as stranger, pytest.raises(NoAuthError):
        stranger.get(path)
    zk.delete(path, recursive=True)
