"""A queue at the end of ZooKeeper's sequence numbers, on real servers, with Java and without.

No client can set the counter of a node, so `CountFrom.java` writes it into the data of a stopped
server. Since ZOOKEEPER-3249 the counter sticks at 2147483647.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from benchmarks import curator, newer_curator
from distlock import IncompatiblePeer, zk_lock
from distlock.keys.limits import MAX_INT
from distlock.keys.znodes import WORN
from distlock.session.registry import close_sessions
from distlock_chaos.server import ZooKeeper
from tests.interop.tools import KEY, InJava, JavaPeer, Witness, contend
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import PATIENCE, MakeOwner

pytestmark = pytest.mark.deep

SOURCE = Path(__file__).with_name("CountFrom.java")
SECONDS = 2.0

CountFrom = Callable[[int], str]


@pytest.fixture
def server(newer: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ZooKeeper]:
    """A server of its own: Debian's, or ZooKeeper 3.9."""
    if newer:
        if not newer_curator.jars():
            pytest.skip("ZooKeeper 3.9 was not found. Fetch it with `.ci/setup newer-curator`.")
        monkeypatch.setenv("ZOOKEEPER_HOME", str(newer_curator.HOME))
    with ZooKeeper(data_dir=tmp_path / "zookeeper") as zookeeper:
        yield zookeeper


@pytest.fixture(scope="session")
def program(newer: bool, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to run `CountFrom.java`, compiled."""
    try:
        return curator.command(SOURCE, tmp_path_factory.mktemp("java"), newer=newer)
    except curator.CuratorMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def count_from(
    server: ZooKeeper, program: list[str], two_sessions: Settings
) -> Iterator[CountFrom]:
    """Makes the line of `KEY`, whose next number is the one given, and returns its path."""
    options = {**two_sessions.DISTLOCK["default"], "HOSTS": server.hosts}
    path = f"{options['NAMESPACE']}/{KEY}"

    def make(number: int) -> str:
        (node,) = server.servers
        with raw_client(server.hosts) as client:
            client.create(path, makepath=True)  # no container, which could be gone at the start
        node.stop()
        data = node.folder / "data"
        subprocess.run([*program, str(data), path, str(number)], check=True)
        node.start()
        two_sessions.DISTLOCK = {"default": options, "other": options}
        return path

    yield make
    close_sessions()


def numbers_given(server: ZooKeeper, path: str) -> int:
    """How many numbers a line has given; 0 also where it was removed."""
    with raw_client(server.hosts) as client:
        stat = client.exists(path)
        return 0 if stat is None else (stat.cversion + stat.numChildren) // 2


@pytest.fixture
def contenders(make_owner: MakeOwner, witness_folder: Path) -> Callable[[], tuple[int, int]]:
    """Lets threads of two sessions contend for a while; returns the holds and the overlaps."""

    def run() -> tuple[int, int]:
        counts = [
            make_owner().submit(contend, "mutex", Witness(witness_folder, "mutex"), SECONDS, using)
            for using in ["default", "other"] * 3
        ]
        done = [count.result(2 * PATIENCE) for count in counts]
        return sum(one.holds for one in done), sum(one.overlaps for one in done)

    return run


@pytest.mark.parametrize("start", [WORN - 20, MAX_INT - 20, MAX_INT])
def test_never_do_two_hold_and_the_line_begins_anew(
    server: ZooKeeper,
    count_from: CountFrom,
    contenders: Callable[[], tuple[int, int]],
    start: int,
) -> None:
    path = count_from(start)
    holds, overlaps = contenders()
    assert overlaps == 0
    assert holds >= 6
    assert numbers_given(server, path) < holds * 10


def test_the_counter_of_a_real_server_sticks(server: ZooKeeper, count_from: CountFrom) -> None:
    path = count_from(MAX_INT - 1)
    with raw_client(server.hosts) as client:
        names = [client.create(f"{path}/{name}-", sequence=True) for name in "abc"]
    assert [name.rpartition("-")[2] for name in names] == ["2147483646", "2147483647", "2147483647"]


def test_java_takes_part_up_to_the_worn_numbers_and_beyond(
    count_from: CountFrom,
    server: ZooKeeper,
    java_command: list[str],
    witness_folder: Path,
    contenders: Callable[[], tuple[int, int]],
) -> None:
    path = count_from(WORN - 100)
    java = JavaPeer(java_command, server.hosts, folder=witness_folder.parent)
    try:
        theirs = java.order("thread", "contend", "mutex", path, witness_folder, SECONDS / 2)
        _, overlaps = contenders()
        holds, their_overlaps = map(int, theirs.result(2 * PATIENCE).split())
    finally:
        java.end()
    assert (overlaps, their_overlaps) == (0, 0)
    assert holds >= 1
    assert numbers_given(server, path) < WORN


def test_java_that_stays_in_a_worn_line_is_told_of(
    count_from: CountFrom,
    server: ZooKeeper,
    java_command: list[str],
    make_owner: MakeOwner,
    tmp_path: Path,
) -> None:
    path = count_from(WORN)
    java = JavaPeer(java_command, server.hosts, folder=tmp_path)
    try:
        peer, owner = InJava(java, path), make_owner()
        assert peer.acquire()
        assert not owner.now(zk_lock(KEY).acquire, timeout=0)
        with pytest.raises(IncompatiblePeer, match="sequence numbers"):
            owner.now(zk_lock(KEY).acquire, timeout=1.5)
        granted = owner.submit(zk_lock(KEY).acquire, timeout=PATIENCE)
        eventually(lambda: len(peer.participants()) == 1, PATIENCE)
        assert not granted.done()
        peer.release()
        assert granted.result(PATIENCE)
        owner.now(zk_lock(KEY).release)
    finally:
        java.end()
    assert numbers_given(server, path) < 10
