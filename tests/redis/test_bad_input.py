"""Servers that cannot serve locks: each is named, with what to do, and nothing is left behind."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.engine.redis.errors import RIGHTS
from distlock.session.registry import close_sessions, session_for
from distlock_chaos.ports import free_ports
from tests.interrupts.recipes import RECIPES, block_of
from tests.kit.helpers import ROOT, eventually
from tests.kit.losses import Loss
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, MakeOwner
from tests.redis.tools import SECRET, refusal

PASSWORD = f"{SECRET}-of-the-shop"


@pytest.fixture
def run() -> Iterator[Callable[..., Redis]]:
    """Start a server of the test's own."""
    with ExitStack() as servers:
        yield lambda *options: servers.enter_context(Redis(*options))


def grants() -> bool:
    try:
        locks_and_releases()
    except LockUnavailable:
        return False
    return True


def locks_and_releases() -> None:
    eventually(lambda: session_for().connected, PATIENCE)  # until then a call fails at once
    with zk_lock("key") as hold:
        hold.verify()


def lock_nodes(server: Redis, **how: Any) -> list[str]:
    keys = [key for key in server.ask("KEYS", "*", **how) if ":n:" in key]
    parents = [key for key in keys if server.ask("TYPE", key, **how) == "hash"]
    names = [name for key in parents for name in server.ask("HKEYS", key, **how)]
    return [name for name in names if "-lock-" in name and "/" not in name]


def await_no_nodes(server: Redis, **how: Any) -> None:
    eventually(lambda: not lock_nodes(server, **how), PATIENCE, "a tree without lock nodes")


def test_a_password(use: Callable[..., None], run: Callable[..., Redis]) -> None:
    server = run("--requirepass", PASSWORD)
    use(server.hosts)
    assert "wants a password. Write it into HOSTS." in refusal()
    use(f"redis://:not-{PASSWORD}@127.0.0.1:{server.port}/0")
    assert "refused the name or the password in HOSTS." in refusal()
    use(f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0")
    locks_and_releases()
    await_no_nodes(server, password=PASSWORD)


def test_a_replica(use: Callable[..., None], run: Callable[..., Redis]) -> None:
    primary = run()
    replica = run("--replicaof", "127.0.0.1", str(primary.port))
    use(replica.hosts)
    said = refusal()
    assert "is a replica. Name the primary in HOSTS, or the Sentinels" in said
    assert not primary.ask("KEYS", "*")


def test_a_primary_that_becomes_a_replica_is_left(
    use: Callable[..., None], run: Callable[..., Redis]
) -> None:
    primary, server = run(), run()
    use(server.hosts)
    locks_and_releases()
    server.ask("REPLICAOF", "127.0.0.1", primary.port)
    assert "is a replica. Name the primary in HOSTS" in refusal()
    server.ask("REPLICAOF", "NO", "ONE")
    eventually(grants, PATIENCE, "a lock of a server that has been replaced for a while")


def test_a_server_out_of_memory(
    use: Callable[..., None], run: Callable[..., Redis], make_owner: MakeOwner
) -> None:
    server = run()
    use(server.hosts)
    holder, held = make_owner(), zk_lock("held")
    assert holder.now(held.acquire)
    server.ask("CONFIG", "SET", "maxmemory", 1)
    said = refusal()
    assert "is out of memory. Raise its maxmemory, or free some" in said
    assert len(lock_nodes(server)) == 1
    holder.now(held.release)
    await_no_nodes(server)
    server.ask("CONFIG", "SET", "maxmemory", 0)
    locks_and_releases()


def test_a_script_that_is_removed_is_loaded_again(
    use: Callable[..., None], run: Callable[..., Redis]
) -> None:
    server = run()
    use(server.hosts)
    with zk_lock("key") as hold:
        server.ask("SCRIPT", "FLUSH")
        assert zk_lock("another").acquire()
        zk_lock("another").release()
        hold.verify()
    with zk_lock("key") as hold:
        server.ask("SCRIPT", "FLUSH")
        hold.verify()
    server.ask("SCRIPT", "FLUSH")
    locks_and_releases()
    await_no_nodes(server)


def test_a_flushed_server_has_lost_the_lock(
    use: Callable[..., None], run: Callable[..., Redis], losses: list[Loss]
) -> None:
    server = run()
    use(server.hosts)
    with pytest.raises(LockLost), zk_lock("key") as hold:  # noqa: PT012
        server.ask("FLUSHALL")
        eventually(lambda: hold.lost, PATIENCE, "a hold that is lost")
    assert [loss.hold for loss in losses] == [hold]
    with pytest.raises(LockUnavailable, match="has just started, taken the place of another"):
        zk_lock("key").acquire(timeout=0)  # with more time it would wait
    eventually(grants, PATIENCE, "a lock after the grace period")
    locks_and_releases()
    await_no_nodes(server)


def test_a_server_that_evicts_locks(use: Callable[..., None], run: Callable[..., Redis]) -> None:
    server = run("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    use(server.hosts)
    assert "forgets locks when its memory is full (maxmemory-policy allkeys-lru)" in refusal()
    server.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    eventually(grants, PATIENCE, "a lock")


def test_a_server_that_never_evicts_may_have_any_policy(
    use: Callable[..., None], run: Callable[..., Redis]
) -> None:
    use(run("--maxmemory-policy", "allkeys-lru").hosts)
    locks_and_releases()


@pytest.mark.parametrize("key", ["state", "sessions", "n:", "c:{path}"])
def test_a_key_of_another_type(
    use: Callable[..., None], run: Callable[..., Redis], namespace: str, key: str
) -> None:
    server = run()
    use(server.hosts)
    name = f"{{{namespace}}}:0:" + key.format(path=namespace)
    if "path" in key:  # needed where there is more than one
        with zk_lock("another"):
            pass
    server.ask("RPUSH", name, "a")
    assert "has a key of another type under the prefix of this namespace" in refusal()
    assert server.ask("TYPE", name) == "list"
    assert not lock_nodes(server)
    server.ask("DEL", name)
    locks_and_releases()
    await_no_nodes(server)


def test_another_version_that_keeps_its_nodes_in_another_way(
    use: Callable[..., None], run: Callable[..., Redis], namespace: str
) -> None:
    server = run()
    use(server.hosts)
    server.ask("HSET", f"{{{namespace}}}:0:state", "layout", "another")
    assert "has locks of another version of distlock" in refusal()
    server.ask("DEL", f"{{{namespace}}}:0:state")
    locks_and_releases()
    await_no_nodes(server)


def test_a_replica_that_does_not_confirm_a_lock(
    use: Callable[..., None], run: Callable[..., Redis]
) -> None:
    primary = run()
    replica = run("--replicaof", "127.0.0.1", str(primary.port))
    eventually(
        lambda: "'master_link_status': 'up'" in str(replica.ask("INFO", "replication")), PATIENCE
    )
    use(primary.hosts, REPLICAS=1, TIMEOUT=5, CONNECT_TIMEOUT=5)
    locks_and_releases()
    replica.pause()
    assert "0 of the 1 replicas that REPLICAS asks for confirmed the lock in time" in refusal()
    await_no_nodes(primary)
    replica.go_on()
    eventually(grants, PATIENCE, "a lock that the replica confirms")
    await_no_nodes(primary)


def in_cluster(run: Callable[..., Redis]) -> tuple[Redis, int]:
    """Start a server of a cluster; return it and the port of its bus, by default 10,000 more."""
    (bus,) = free_ports(1)
    return run("--cluster-enabled", "yes", "--cluster-port", str(bus)), bus


def test_a_cluster(use: Callable[..., None], run: Callable[..., Redis]) -> None:
    server, _ = in_cluster(run)
    use(server.hosts)
    assert "is one of a cluster that is down." in refusal()
    server.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    eventually(lambda: "cluster_state:ok" in str(server.ask("CLUSTER", "INFO")), PATIENCE)
    locks_and_releases()
    await_no_nodes(server)


def test_a_cluster_that_keeps_the_keys_elsewhere(
    use: Callable[..., None], run: Callable[..., Redis]
) -> None:
    (one, _), (other, bus) = in_cluster(run), in_cluster(run)
    other.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    one.ask("CLUSTER", "SET-CONFIG-EPOCH", 1)
    one.ask("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
    eventually(lambda: "cluster_state:ok" in str(one.ask("CLUSTER", "INFO")), PATIENCE)
    use(one.hosts)
    said = refusal()
    assert "is one of a cluster, and the keys are on another" in said
    assert f"127.0.0.1:{other.port}" in said


FACTS = {"server": "+redis", "version": "+6.0.20", "proto": ":3", "role": "+master"}
REDIS_6 = f"%{len(FACTS)}\r\n" + "".join(f"+{name}\r\n{fact}\r\n" for name, fact in FACTS.items())
REDIS_5 = "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n"


@pytest.mark.parametrize("hello", [REDIS_5, REDIS_6])
def test_a_server_that_is_too_old(use: Callable[..., None], hello: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_greet, args=[listening, hello], daemon=True).start()
        use(f"redis://127.0.0.1:{listening.getsockname()[1]}/0")
        assert "is too old: distlock needs Redis 6.2, or Valkey." in refusal()
        listening.shutdown(socket.SHUT_RDWR)  # close() alone would not end accept()


def _greet(listening: socket.socket, hello: str) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        with client:
            while asked := client.recv(4096):
                for word in asked.split():
                    if word == b"HELLO":
                        client.sendall(hello.encode())
                    elif word == b"SETINFO":
                        client.sendall(b"-ERR Unknown subcommand\r\n")


@pytest.mark.parametrize("command", ["SCRIPT", "SUBSCRIBE", "EVALSHA", "INFO", "TIME"])
def test_a_command_that_is_renamed(
    use: Callable[..., None], run: Callable[..., Redis], command: str
) -> None:
    server = run("--rename-command", command, "")
    use(server.hosts)
    said = refusal()
    assert "none of the commands renamed (rename-command)" in said
    assert "too old" not in said
    assert "with args" not in said


#: What the docs give a user.
(DOCUMENTED,) = re.findall(
    r"ACL SETUSER distlock on >password (.*)", (ROOT / "docs/how-to/redis.md").read_text()
)


def test_a_user_with_the_documented_rights(
    use: Callable[..., None], run: Callable[..., Redis], namespace: str
) -> None:
    server = run()
    rights = DOCUMENTED.replace("/distlock", namespace).split()
    server.ask("ACL", "SETUSER", "locks", "on", f">{PASSWORD}", *rights)
    use(f"redis://locks:{PASSWORD}@127.0.0.1:{server.port}/0")
    for recipe in RECIPES:
        block_of(recipe)()
    close_sessions()
    assert server.ask("ACL", "LOG") == []
    beyond = [("EVAL", "return 1", 0), ("SCAN", 0), ("SCRIPT", "FLUSH")]
    for command in [*beyond, ("FLUSHALL",), ("KEYS", "*"), ("GET", "other")]:
        with pytest.raises(NoPermissionError):
            server.ask(*command, username="locks", password=PASSWORD)


@pytest.mark.parametrize("lacks", ["evalsha", "script|load", "subscribe", "time", "info", "sadd"])
def test_a_user_without_one_of_the_rights(
    use: Callable[..., None], run: Callable[..., Redis], lacks: str
) -> None:
    server = run()
    server.ask("ACL", "SETUSER", "locks", "on", f">{PASSWORD}", *DOCUMENTED.split(), f"-{lacks}")
    use(f"redis://locks:{PASSWORD}@127.0.0.1:{server.port}/0", NAMESPACE="/distlock")
    assert RIGHTS in refusal()
    assert DOCUMENTED.endswith(RIGHTS)
