"""AUTH with ACL: whoever has other credentials, or none, can neither read nor break a lock.

Deleting is checked on the parent's ACL, so the parents must be protected too; wrong digest
credentials are noticed at the first operation only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl
from pytest_django import Settings

from distlock import LockUnavailable, zk_lock
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import raw_client
from tests.kit.tools import within
from tests.security.conftest import Configure

SECRET = "s3cr3t-of-the-shop"
AUTH = [("digest", f"shop:{SECRET}")]


@pytest.fixture
def creator(zookeeper: ZooKeeper, configure: Configure) -> None:
    configure(HOSTS=zookeeper.hosts, AUTH=AUTH, ACL="creator")


@pytest.fixture
def stranger(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    with raw_client(zookeeper.hosts) as client:
        yield client


@pytest.fixture
def colleague(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    with raw_client(zookeeper.hosts, auth_data=AUTH) as client:
        yield client


@pytest.mark.usefixtures("creator")
def test_a_lock_node_and_its_parents_belong_to_the_creator(
    colleague: KazooClient, namespace: str
) -> None:
    with zk_lock("key") as hold:
        for path in (hold.path, f"{namespace}/key", namespace):
            ((owner),) = colleague.get_acls(path)[0]
            assert owner.id.scheme == "digest"
            assert owner.id.id.startswith("shop:")
            assert owner.acl_list == ["ALL"]


MISDEEDS: dict[str, Callable[[KazooClient, str], Any]] = {
    "read the node": lambda client, path: client.get(path),
    "write the node": lambda client, path: client.set(path, b"__REVOKE__"),
    "delete the node": lambda client, path: client.delete(path),
    "list the line": lambda client, path: client.get_children(path.rpartition("/")[0]),
    "stand in line": lambda client, path: client.create(path, sequence=True),
    "delete the parent": lambda client, path: client.delete(path.rpartition("/")[0]),
    "list the locks": lambda client, path: client.get_children(path.rsplit("/", 2)[0]),
    "open the parent": lambda client, path: client.set_acls(
        path.rpartition("/")[0], [make_digest_acl("thief", "x", all=True)]
    ),
}


@pytest.mark.usefixtures("creator")
@pytest.mark.parametrize("misdeed", MISDEEDS.values(), ids=MISDEEDS)
def test_a_stranger_cannot(misdeed: Callable[[KazooClient, str], Any], stranger: Any) -> None:
    with zk_lock("key") as hold:
        with pytest.raises(NoAuthError):
            misdeed(stranger, hold.path)
        hold.verify()


def test_the_same_credentials_exclude_each_other(
    settings: Settings, zookeeper: ZooKeeper, configure: Configure
) -> None:
    configure(HOSTS=zookeeper.hosts, AUTH=AUTH, ACL="creator")
    default = settings.DISTLOCK["default"]
    settings.DISTLOCK = {"default": default, "other": default}
    with zk_lock("key"):
        assert not zk_lock("key", using="other").acquire(timeout=0)
    with zk_lock("key", using="other"):
        pass


@pytest.mark.parametrize("password", ["old", "new"])
def test_with_two_credentials_nodes_belong_to_both(
    password: str, zookeeper: ZooKeeper, configure: Configure
) -> None:
    """So that a password can be changed while everything runs."""
    both = [("digest", "shop:old"), ("digest", "shop:new")]
    configure(HOSTS=zookeeper.hosts, AUTH=both, ACL="creator")
    with zk_lock("key"):
        pass
    configure(HOSTS=zookeeper.hosts, AUTH=[("digest", f"shop:{password}")], ACL="creator")
    with zk_lock("key"):
        pass


def test_a_list_of_acls_is_set_as_it_is(
    zookeeper: ZooKeeper, configure: Configure, colleague: KazooClient
) -> None:
    acl = [
        make_digest_acl("shop", SECRET, all=True),
        make_digest_acl("auditor", "x", read=True),
    ]
    configure(HOSTS=zookeeper.hosts, AUTH=AUTH, ACL=acl)
    with zk_lock("key") as hold:
        assert sorted(colleague.get_acls(hold.path)[0]) == sorted(acl)


@pytest.mark.parametrize("auth", [None, [("digest", "shop:wrong-s3cr3t")]], ids=["no", "wrong"])
def test_credentials_that_may_not_enter_are_told_so_at_once(
    auth: Any, zookeeper: ZooKeeper, configure: Configure
) -> None:
    configure(HOSTS=zookeeper.hosts, AUTH=AUTH, ACL="creator")
    with zk_lock("key"):
        pass
    configure(HOSTS=zookeeper.hosts, AUTH=auth, ACL="open", TIMEOUT=30)
    with within(5), pytest.raises(LockUnavailable, match="no permission") as refused:
        zk_lock("key").acquire()
    assert "AUTH" in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_the_acl_of_the_creator_needs_somebody_to_be(
    zookeeper: ZooKeeper, configure: Configure
) -> None:
    configure(HOSTS=zookeeper.hosts, ACL="creator")
    with pytest.raises(LockUnavailable, match=r'ACL "creator" needs AUTH'):
        zk_lock("key").acquire()


def test_an_unknown_scheme_is_refused_by_name(zookeeper: ZooKeeper, configure: Configure) -> None:
    configure(HOSTS=zookeeper.hosts, AUTH=[("kerberoast", f"shop:{SECRET}")])
    with pytest.raises(LockUnavailable, match="refused the credentials in AUTH") as refused:
        zk_lock("key").acquire()
    assert SECRET not in str(refused.value)
