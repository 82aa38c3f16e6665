"""`kazoo_client`: one session for locks and for kazoo's recipes."""

from __future__ import annotations

import threading
import time
from queue import Queue
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionClosedError, NoNodeError, RolledBackError
from kazoo.protocol.states import KazooState
from pytest_django import Settings

from distlock import LockUnavailable, kazoo_client, zk_lock
from distlock.session.registry import close_sessions, session_for
from distlock.testing import memory_zookeeper
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.fork.tools import heard, program
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire, inside

# After `expire`, for which the tests look inside.
pytestmark = pytest.mark.usefixtures("tree")


def states_of(client: Any) -> Queue[str]:
    told: Queue[str] = Queue()
    client.add_listener(told.put)
    return told


def test_its_nodes_live_in_the_session_of_the_locks(tree: Tree) -> None:
    zk = kazoo_client()
    assert zk is kazoo_client()
    assert zk.connected
    path = f"{tree.namespace}/mine"
    with zk_lock("key") as hold:
        zk.create(path, ephemeral=True)
        owner = zk.get(hold.path)[1].ephemeralOwner
        assert owner == zk.get(path)[1].ephemeralOwner == zk.client_id[0]
    assert zk.exists(f"{path}/none") is None
    with pytest.raises(NoNodeError):
        zk.get(f"{path}/none")
    close_sessions()
    assert tree.client.exists(path) is None


def test_a_transaction_is_carried_out_only_while_the_lock_is_held(tree: Tree) -> None:
    zk = kazoo_client()
    path = f"{tree.namespace}/guarded"
    zk.ensure_path(path)
    with zk_lock("key") as hold:
        for noted in (0, 1):  # by a hold that lasts
            eventually(lambda: zk.get(hold.path)[1].version == noted, PATIENCE)  # noqa: B023
            transaction = zk.transaction()
            transaction.check(hold.path, -1)
            transaction.set_data(path, b"mine")
            first, second = transaction.commit()
        assert first is True
        assert second.version == 2
        transaction = zk.transaction()
        transaction.check(hold.path, 0)
        transaction.set_data(path, b"never")
        assert isinstance(transaction.commit()[0], BadVersionError)
    transaction = zk.transaction()
    transaction.set_data(path, b"never")
    transaction.check(hold.path, -1)
    assert [type(one) for one in transaction.commit()] == [RolledBackError, NoNodeError]
    assert zk.get(path)[0] == b"mine"


@pytest.mark.parametrize(
    "use",
    [
        lambda zk: zk.stop(),
        lambda zk: zk.close(),
        lambda zk: zk.restart(),
        lambda zk: zk.set_hosts("elsewhere:2181"),
        lambda zk: zk.add_auth("digest", "a:b"),
        lambda zk: zk.command(b"ruok"),
    ],
)
def test_who_would_end_or_change_the_session_learns_whose_it_is(use: Any) -> None:
    zk = kazoo_client()
    zk.start()  # is no mistake
    with pytest.raises(RuntimeError, match="belongs to distlock"):
        use(zk)
    assert zk.exists("/") is not None


def test_callbacks_may_block_while_locks_go_on(tree: Tree) -> None:
    zk = kazoo_client()
    path = f"{tree.namespace}/watched"
    zk.ensure_path(path)
    go_on, entered = threading.Event(), [threading.Event() for _ in range(2)]

    def block(entered: threading.Event) -> bool:
        entered.set()
        return go_on.wait(PATIENCE)

    zk.get(path, watch=lambda _: block(entered[0]))
    zk.get_async(path).rawlink(lambda _: block(entered[1]))
    tree.client.set(path, b"changed")
    try:
        assert all(one.wait(PATIENCE) for one in entered)
        with zk_lock("key") as hold:
            hold.verify()
        assert zk.get(path)[0] == b"changed"
    finally:
        go_on.set()


def test_its_threads_start_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    zk = kazoo_client()

    def ours() -> set[str]:
        names = {thread.name for thread in threading.enumerate()}
        return names & {
            f"distlock-default-{one}" for one in ("watches", "completions", "listeners")
        }

    eventually(lambda: not ours())  # those of the tests before have ended
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            zk.exists("/")
    zk.exists("/")
    assert len(ours()) == 3
    close_sessions()
    eventually(lambda: not ours())


def test_an_interrupted_request_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is never sent would keep a watch of the locks on the server."""
    zk = kazoo_client()

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session_for()._client, "soon", interrupt)
        with pytest.raises(KeyboardInterrupt):
            zk.get("/", watch=print)
    assert not zk.watches("/", children=False)


def test_a_failing_callback_is_logged_and_ends_nothing(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    zk = kazoo_client()
    path = f"{tree.namespace}/watched"
    zk.ensure_path(path)
    seen: Queue[Any] = Queue()
    zk.get(path, watch=lambda _: 1 / 0)
    tree.client.set(path, b"1")
    eventually(lambda: "callback" in caplog.text)
    zk.get(path, watch=seen.put)
    tree.client.set(path, b"2")
    assert seen.get(timeout=PATIENCE).path == path


def test_listeners_hear_of_a_cut_and_a_data_watch_goes_on(
    patient_link: TcpProxy, tree: Tree
) -> None:
    zk = kazoo_client()
    path = f"{tree.namespace}/watched"
    tree.client.ensure_path(path)
    told, seen = states_of(zk), Queue[Any]()

    @zk.DataWatch(path)  # type: ignore[untyped-decorator]
    def watch(data: bytes, _: Any) -> None:
        seen.put(data)

    assert seen.get(timeout=PATIENCE) == b""
    patient_link.cut()
    assert told.get(timeout=PATIENCE) == KazooState.SUSPENDED
    tree.client.set(path, b"meanwhile")
    asked = zk.get_async(path)  # waits for the connection
    assert not asked.ready()
    patient_link.pass_through()
    assert told.get(timeout=PATIENCE) == KazooState.CONNECTED
    assert seen.get(timeout=PATIENCE) == asked.get(timeout=PATIENCE)[0] == b"meanwhile"


def test_the_same_client_carries_the_next_session(zookeeper: ZooKeeper, tree: Tree) -> None:
    zk = kazoo_client()
    told, before = states_of(zk), zk.client_id
    path = f"{tree.namespace}/party"
    expire(zookeeper.hosts, session_for())
    while (state := told.get(timeout=PATIENCE)) != KazooState.LOST:
        assert state == KazooState.SUSPENDED
    assert told.get(timeout=PATIENCE) == KazooState.CONNECTED
    assert kazoo_client() is zk
    assert zk.client_id != before
    zk.Party(path, "me").join()
    with zk_lock("key"):
        assert [*zk.Party(path)] == ["me"]


def test_after_an_expiry_watchers_go_on_and_recipes_say_what_is_gone(
    zookeeper: ZooKeeper, tree: Tree
) -> None:
    zk = kazoo_client()
    told, seen = states_of(zk), Queue[Any]()
    path = f"{tree.namespace}-expired"
    tree.client.ensure_path(path)
    zk.ChildrenWatch(path, seen.put)
    assert seen.get(timeout=PATIENCE) == []
    queue = zk.LockingQueue(f"{path}/queue")
    queue.put(b"one")
    assert seen.get(timeout=PATIENCE) == ["queue"]
    assert queue.get(timeout=PATIENCE) == b"one"
    expire(zookeeper.hosts, session_for())
    while told.get(timeout=PATIENCE) != KazooState.CONNECTED:
        pass
    with pytest.raises(NoNodeError):  # the item is somebody else's now
        queue.consume()
    assert zk.LockingQueue(f"{path}/queue").get(timeout=PATIENCE) == b"one"
    tree.client.delete(f"{path}/queue", recursive=True)
    assert seen.get(timeout=PATIENCE) == []
    tree.client.delete(path)


def test_after_the_end_of_the_session_the_old_client_says_so() -> None:
    zk = kazoo_client()
    told = states_of(zk)
    zk.exists("/")
    close_sessions()
    assert told.get(timeout=PATIENCE) == KazooState.LOST
    with pytest.raises(ConnectionClosedError):
        zk.exists("/")
    assert kazoo_client() is not zk
    assert kazoo_client().exists("/")


def test_a_lock_does_not_take_away_the_watch_of_a_user(make_owner: MakeOwner) -> None:
    """The server has one watch on a node for both, which a waiter that gives up would remove."""
    zk = kazoo_client()
    seen: Queue[Any] = Queue()
    with zk_lock("key", using="other") as hold:
        zk.get(hold.path, watch=seen.put)
        assert not make_owner().now(lambda: zk_lock("key").acquire(timeout=0.3))
        waiting = make_owner().submit(lambda: zk_lock("key").acquire(timeout=0.3))
        assert not waiting.result(PATIENCE)
        zk.sync(hold.path)
        assert seen.empty()
        watches = session_for().watches
        eventually(lambda: not watches.watchers)
    event = seen.get(timeout=PATIENCE)
    assert (event.type, event.path) == ("DELETED", hold.path)
    assert not inside(session_for())._data_watchers.get(hold.path)


def test_a_request_that_would_cost_the_connection_is_refused(tree: Tree) -> None:
    zk = kazoo_client()
    told = states_of(zk)
    with pytest.raises(ValueError, match="bytes"):
        zk.create(f"{tree.namespace}-large", b"x" * 2**20)
    assert zk.exists("/")
    assert told.empty()


def test_paths_are_relative_to_the_chroot(settings: Settings, tree: Tree) -> None:
    tree.client.ensure_path(f"{tree.namespace}-chroot")
    default = settings.DISTLOCK["default"]
    hosts = f"{default['HOSTS']}{tree.namespace}-chroot"
    settings.DISTLOCK = {**settings.DISTLOCK, "default": {**default, "HOSTS": hosts}}
    zk = kazoo_client()
    seen: Queue[Any] = Queue()
    assert zk.create("/mine") == "/mine"
    zk.get("/mine", watch=seen.put)
    assert tree.client.exists(f"{tree.namespace}-chroot/mine")
    with zk_lock("key") as hold:
        transaction = zk.transaction()
        transaction.check(zk.unchroot(hold.path), -1)
        transaction.delete("/mine")
        assert transaction.commit() == [True, True]
    assert seen.get(timeout=PATIENCE).path == "/mine"


def test_without_a_server_it_says_so_in_time(settings: Settings) -> None:
    hosts = f"127.0.0.1:{free_ports(1)[0]}"
    settings.DISTLOCK = {"default": {"HOSTS": hosts, "CONNECT_TIMEOUT": 0.3}}
    started = time.monotonic()
    with pytest.raises(LockUnavailable, match=hosts):
        kazoo_client()
    assert time.monotonic() - started < 5


def test_the_zookeeper_in_memory_has_one_too() -> None:
    with memory_zookeeper() as tree, zk_lock("key"):
        kazoo_client().create("/mine", ephemeral=True)
        assert min(tree.ephemerals()[session_for().id]) == "/mine"


ENDS = """
from distlock import kazoo_client

zk = kazoo_client()
zk.Party(sys.argv[2] + "-party", "me").join()
entered = threading.Event()

@zk.DataWatch(sys.argv[2] + "-party")
def never_return(data, stat):
    if data:
        entered.set()
        threading.Event().wait()

for wait in zk.LockingQueue(sys.argv[2] + "-queue").get, zk.Barrier(sys.argv[2] + "-party").wait:
    threading.Thread(target=wait, daemon=True).start()
zk.set(sys.argv[2] + "-party", b"changed")
entered.wait()
"""


def test_at_exit_nothing_keeps_the_process_nor_the_nodes(tree: Tree, zookeeper: ZooKeeper) -> None:
    """Threads wait in recipes, and a callback never returns."""
    path = f"{tree.namespace}-party"
    with program(ENDS, zookeeper.hosts, tree.namespace, session_timeout=20) as process:
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert tree.client.get_children(path) == []
    tree.client.delete(path)


FORKS = """
from distlock import kazoo_client

def child():
    found = {}
    signal.alarm(20)
    for name, ask in ("one", zk.exists), ("several", zk.ensure_path):
        with timed(found, name):
            ask("/")
    own = kazoo_client()
    return {**found, "own": own.exists("/") is not None, "same": own is zk}

zk = kazoo_client()
zk.exists("/")
session = zk.client_id[0]
tell(in_a_child(child))
tell([zk.exists("/") is not None, zk.client_id[0] == session])
"""


def test_a_forked_child_has_its_own(tree: Tree, zookeeper: ZooKeeper) -> None:
    with program(FORKS, zookeeper.hosts, tree.namespace) as process:
        found = heard(process)
        assert found.pop("one took") + found.pop("several took") < 1
        assert found == {
            "one": "ConnectionClosedError",
            "several": "ConnectionClosedError",
            "own": True,
            "same": False,
            "status": 0,
        }
        assert heard(process) == [True, True]
        process.wait(PATIENCE)
