"""Real Apache Curator on the other side: semaphores and their mutex (promise 10).

``InterProcessSemaphoreV2`` and ``InterProcessSemaphoreMutex``.
"""

from __future__ import annotations

from pathlib import Path

from distlock_chaos.server import ZooKeeper
from tests.interop.tools import KEY, JavaPeer, Language, NewContender
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree

#: A limit of two leases.
TWO = "semaphore=2"


def await_leases(tree: Tree, number: int) -> list[str]:
    """Wait until there are so many lease nodes: those granted, and that of the first who waits."""
    return await_nodes(tree, "leases", number)


def await_nodes(tree: Tree, where: str, number: int) -> list[str]:
    def nodes() -> list[str]:
        return tree.children(f"{tree.path(KEY)}/{where}")

    eventually(lambda: len(nodes()) == number, PATIENCE, f"{number} {where}")
    return nodes()


def test_the_leases_of_both_languages_count_together(contender: NewContender, tree: Tree) -> None:
    java, python = contender("Java"), contender("Python")
    assert java.acquire(TWO)
    assert python.acquire(TWO)
    assert not contender("Java").acquire(TWO, timeout=0)
    assert not contender("Python").acquire(TWO, timeout=0)
    leases = sorted(await_leases(tree, 2))
    assert sorted(java.participants(TWO)) == sorted(python.participants(TWO)) == leases
    java.release(TWO)
    python.release(TWO)
    await_leases(tree, 0)


def test_those_who_wait_for_a_lease_are_granted_in_the_order_of_arrival(
    contender: NewContender, tree: Tree
) -> None:
    languages: list[Language] = ["Python", "Java", "Python", "Java"]
    holder = contender("Java")
    assert holder.acquire("semaphore=1")
    line = [contender(language) for language in languages]
    granted = []
    for number, one in enumerate(line, start=1):
        granted.append(one.ask("semaphore=1"))
        # The first of them waits with a lease node, and with the lock that the others wait for.
        await_leases(tree, 2)
        await_nodes(tree, "locks", number)
    for turn, releasing in enumerate([holder, *line[:-1]]):
        assert not any(later.done() for later in granted[turn:])
        releasing.release("semaphore=1")
        assert granted[turn].result(PATIENCE)
    line[-1].release("semaphore=1")


def test_the_leases_of_a_killed_java_process_come_back(
    contender: NewContender,
    java_command: list[str],
    zookeeper: ZooKeeper,
    tree: Tree,
    tmp_path: Path,
) -> None:
    doomed = JavaPeer(java_command, zookeeper.hosts, folder=tmp_path, session_timeout=2)
    waiter = contender("Python")
    try:
        for _ in range(2):
            assert doomed.do("holder", "acquire", TWO, tree.path(KEY), PATIENCE) == "got"
        granted = waiter.ask(TWO)
        await_leases(tree, 3)
        assert not granted.done()
    finally:
        doomed.kill()
    assert granted.result(PATIENCE)
    waiter.release(TWO)
