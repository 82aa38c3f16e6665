"""What others have left in the tree, what may not be read, and servers that do not answer."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.security import Permissions
from pytest_django import Settings

from distlock import LockKeyError, LockUnavailable, escape_key, zk_lock
from distlock.inspection import tree as inspection
from distlock.inspection.tree import look, snapshot
from distlock.session.bulk_reads import GONE, UNREAD, Reads
from distlock_chaos.proxy import TcpProxy
from tests.inspection.tools import ONLY_NOBODY, cleared, found, names, stand, the_lock
from tests.kit.helpers import eventually
from tests.kit.tools import OVERRUN, PATIENCE, Owner, Tree, await_connection, within

pytestmark = pytest.mark.usefixtures("tree")


def test_many_big_nodes_are_not_kept(tree: Tree) -> None:
    with cleared(tree):
        path = stand(tree, "key", data=b"x" * 1_000_000)
        session = await_connection()
        data, stat = Reads(session, PATIENCE).nodes([path])[0]
        assert (len(data), stat.dataLength) == (10_000, 1_000_000)


def test_a_leases_node_that_says_nothing_holds_for_ever(tree: Tree) -> None:
    with cleared(tree):
        tree.client.create(f"{tree.namespace}/@leases/key", b"?", makepath=True)
        (seen,) = found().locks
        assert (seen.kind, seen.holding) == ("lease", 1)
        assert "never expires" in str(seen.holders[0])


@pytest.mark.parametrize("kind", ["lock-", "__READ__", "__WRIT__"])
def test_curators_nodes_are_a_peers(tree: Tree, kind: str) -> None:
    with cleared(tree):
        stand(tree, "key", kind)
        (one,) = the_lock("key").holders
        assert one.participant.peer
        assert str(one).startswith("a peer with node ")
        assert one.owner == ""


def test_curators_semaphore_has_no_limit(tree: Tree) -> None:
    with cleared(tree):
        for _ in range(2):
            stand(tree, "key", "lease-", under="/leases")
        seen = the_lock("key")
        assert (seen.kind, seen.limit, seen.holding, seen.waiting) == ("semaphore", None, 2, 0)
        # Who is at the gate has the newest lease, and waits for another to go.
        stand(tree, "key", under="/locks")
        seen = the_lock("key")
        assert (seen.holding, seen.waiting) == (1, 1)
        assert len(seen.holders) == 1


def test_kazoos_own_lock_is_named_and_is_no_lock_of_ours(tree: Tree) -> None:
    with cleared(tree):
        lock = tree.client.Lock(tree.path("key"), "me")
        lock.acquire()
        (name,) = tree.children(tree.path("key"))
        (seen,) = found().locks
        assert (seen.kind, seen.foreign, seen.holding) == ("unknown", (name,), 0)
        stand(tree, "key")
        (seen,) = found().locks
        assert (seen.kind, seen.foreign, seen.holding) == ("mutex", (name,), 1)
        lock.release()


def test_names_of_others_are_few_and_can_be_printed(tree: Tree) -> None:
    with cleared(tree):
        for number in range(9):
            tree.client.create(f"{tree.path('key')}/\u202e{number}", makepath=True)
        (seen,) = found().locks
        assert [name.isprintable() for name in seen.foreign] == [True] * 5


def test_a_key_with_escapes_is_told_in_full_and_printed_without_harm() -> None:
    with zk_lock(escape_key("a\x1b[2J\n<b>")):
        (seen,) = found().locks
        assert seen.key == "a\x1b[2J\n<b>"
        assert str(seen).isprintable()


@pytest.mark.parametrize("key", ["", "\ud800"], ids=ascii)
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(LockKeyError):
        look(key)


@pytest.mark.parametrize("key", ["%/x", "%\x00", "%/../..", "@leases/%2E%2E/x"], ids=ascii)
def test_a_key_is_no_way_out_of_the_namespace(key: str) -> None:
    assert look(key, budget=PATIENCE).locks == ()


# --- what vanishes, and what may not be read -----------------------------------------------------


def test_a_node_that_vanishes_between_list_and_read_is_skipped(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cleared(tree):
        first, second, third = (stand(tree, "key") for _ in range(3))
        stand(tree, "gone")
        children = Reads.children

        def and_then_some_go(reads: Reads, paths: Any) -> Any:
            listed = children(reads, paths)
            if any(first.rpartition("/")[2] in names for names in listed if names is not GONE):
                for path in (first, third, tree.path("gone")):
                    tree.client.delete(path, recursive=True)
            return listed

        monkeypatch.setattr(Reads, "children", and_then_some_go)
        (seen,) = found().locks
        # Who was second holds the lock by now.
        assert (seen.holding, seen.waiting) == (1, 0)
        assert [one.participant.path for one in seen.holders] == [second]


def test_a_key_that_may_not_be_listed_is_shown_as_such(tree: Tree) -> None:
    with cleared(tree):
        stand(tree, "open")
        tree.client.create(tree.path("secret"))
        tree.client.set_acls(tree.path("secret"), ONLY_NOBODY)
        locks = {lock.key: lock for lock in found().locks}
        assert (locks["secret"].kind, locks["secret"].readable) == ("unknown", False)
        assert locks["open"].readable


def test_a_node_that_may_not_be_read_is_shown_as_such(tree: Tree) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        tree.client.set_acls(path, ONLY_NOBODY)
        (seen,) = found().locks
        (one,) = seen.holders
        assert (one.readable, one.seconds, seen.holding) == (False, None, 1)
        assert "may not be read" in str(one)
        assert names(seen.holders) == tree.line("key")
        assert seen.held is None


def test_leases_of_a_semaphore_that_may_not_be_listed_are_said_to_be(tree: Tree) -> None:
    with cleared(tree):
        stand(tree, "key", "lease-", under="/leases")
        tree.client.set_acls(f"{tree.path('key')}/leases", ONLY_NOBODY)
        (seen,) = found().locks
        assert (seen.kind, seen.readable, seen.holding) == ("semaphore", False, 0)


def test_a_namespace_that_may_not_be_listed_is_an_error_that_says_so(tree: Tree) -> None:
    with cleared(tree):
        tree.client.create(tree.namespace)
        tree.client.set_acls(tree.namespace, ONLY_NOBODY)
        with pytest.raises(LockUnavailable, match="no permission"):
            snapshot(budget=PATIENCE)


def test_where_nothing_may_be_written_waits_are_by_our_own_clock(tree: Tree) -> None:
    with cleared(tree):
        stand(tree, "key")
        world = tree.client.get_acls(tree.namespace)[0][0]
        tree.client.set_acls(tree.namespace, [*ONLY_NOBODY, world._replace(perms=Permissions.READ)])
        seen = found()
        assert not seen.exact
        assert seen.locks[0].holders[0].seconds is not None


# --- time ----------------------------------------------------------------------------------------


def test_a_time_that_is_up_cuts_it_short_and_the_rest_can_be_had(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "BATCH", 2)
    with cleared(tree):
        for number in range(6):
            stand(tree, f"key-{number}")
        nodes, looks = Reads.nodes, []

        def slow(reads: Reads, paths: Any) -> Any:
            looks.append(paths)
            outcomes = nodes(reads, paths)
            return [*outcomes[:1], UNREAD] if len(looks) == 2 else outcomes

        monkeypatch.setattr(Reads, "nodes", slow)
        first = found()
        assert [lock.key for lock in first.locks] == ["key-0", "key-1", "key-2"]
        assert (first.cut, first.keys) == (True, 6)
        assert not found().cut


def test_a_server_that_does_not_answer_is_given_up_within_the_budget(broken_link: TcpProxy) -> None:
    await_connection()
    broken_link.black_hole()
    with within(0.5 + OVERRUN), pytest.raises(LockUnavailable):
        snapshot(budget=0.5)
    with within(0.5 + OVERRUN), pytest.raises(LockUnavailable):
        look("key", budget=0.5)


def test_a_connection_that_is_lost_meanwhile_is_an_error_at_once(
    broken_link: TcpProxy, two_sessions: Settings
) -> None:
    reads = Reads(await_connection(), 10 * PATIENCE)
    broken_link.black_hole()
    with Owner() as reader:
        reading = reader.submit(reads.nodes, [two_sessions.DISTLOCK["default"]["NAMESPACE"]] * 1000)
        eventually(lambda: reads.session._in_flight, PATIENCE)
        broken_link.cut()
        with pytest.raises(LockUnavailable):
            reading.result(PATIENCE)
