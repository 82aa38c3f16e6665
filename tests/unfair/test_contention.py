"""Those who queue and those who do not contend: one at a time is in, and all get in."""

from __future__ import annotations

import itertools
import json
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from distlock import zk_lock
from distlock.session.registry import session_for
from tests.kit.helpers import eventually, spawn_python
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, forgets_all
from tests.mutex.test_fairness import packets

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django import Settings

    from distlock_chaos.server import ZooKeeper

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("patient", "tree")]


@pytest.mark.parametrize("fairness", [(False,), (True, False)], ids=["not fair", "mixed"])
def test_threads_are_in_one_at_a_time(
    tree: Tree, make_owner: MakeOwner, fairness: tuple[bool, ...]
) -> None:
    rounds, inside = 15, []
    tokens: list[int] = []
    together = threading.Barrier(8, timeout=PATIENCE)

    def contend(using: str, fair: bool) -> None:
        lock = zk_lock("key", using=using, fair=fair, timeout=PATIENCE * 2)
        together.wait()
        for _ in range(rounds):
            with lock as hold:
                inside.append(hold)
                assert inside == [hold]
                tokens.append(hold.token)
                inside.remove(hold)

    kinds = itertools.cycle(itertools.product(("default", "other"), fairness))
    contenders = [make_owner().submit(contend, *next(kinds)) for _ in range(8)]
    for contender in contenders:
        contender.result(PATIENCE * 4)
    assert len(tokens) == 8 * rounds
    assert tokens == sorted(set(tokens))
    tree.await_line("key", 0)
    tree.await_watches()
    for using in ("default", "other"):
        forgets_all(session_for(using))


def test_short_waits_in_a_crowd_are_granted_or_busy_and_nothing_else(
    tree: Tree, make_owner: MakeOwner
) -> None:
    inside: list[int] = []
    outcomes: set[bool] = set()

    def contend(number: int) -> None:
        lock = zk_lock("key", using=("default", "other")[number % 2], fair=number % 3 == 0)
        for timeout in (0, 0.002, 0.01, 0.05, 0.1) * 4:
            granted = lock.acquire(timeout=timeout)
            outcomes.add(granted)
            if granted:
                inside.append(number)
                assert inside == [number]
                inside.remove(number)
                lock.release()

    contenders = [make_owner().submit(contend, number) for number in range(9)]
    for contender in contenders:
        contender.result(PATIENCE * 4)
    assert outcomes == {True, False}
    tree.await_line("key", 0)
    tree.await_watches()
    for using in ("default", "other"):
        forgets_all(session_for(using))


# Adds to a number in a file, without any care, and tells the history of its holds.
COUNTS = """
import json, os, sys, threading, time
from pathlib import Path
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=20)
from distlock import zk_lock

counter, rounds = Path(sys.argv[3]), int(sys.argv[5])
history = os.open(sys.argv[4], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def count(fair):
    for _ in range(rounds):
        with zk_lock("key", fair=fair) as hold:
            acquired = time.monotonic_ns()
            number = int(counter.read_text())
            counter.write_text(str(number + 1))
            said = {"token": hold.token, "acquired": acquired, "released": time.monotonic_ns()}
            os.write(history, json.dumps(said).encode() + b"\\n")

threads = [threading.Thread(target=count, args=[fair == "fair"]) for fair in sys.argv[6:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("kinds", [["unfair", "unfair"], ["unfair", "fair"]], ids="-".join)
def test_four_processes_never_hold_together(
    tree: Tree, zookeeper: ZooKeeper, tmp_path: Path, kinds: list[str]
) -> None:
    counter, history, rounds = tmp_path / "counter", tmp_path / "history", 20
    counter.write_text("0")
    arguments = (zookeeper.hosts, tree.namespace, str(counter), str(history), str(rounds), *kinds)
    with ExitStack() as stack:
        processes = [stack.enter_context(spawn_python(COUNTS, *arguments)) for _ in range(4)]
        for process in processes:
            _, errors = process.communicate(timeout=90)
            assert process.returncode == 0, errors
    assert int(counter.read_text()) == 4 * 2 * rounds
    holds = [json.loads(line) for line in history.read_text().splitlines()]
    holds.sort(key=lambda hold: hold["token"])
    assert len({hold["token"] for hold in holds}) == len(holds) == 4 * 2 * rounds
    for hold, following in itertools.pairwise(holds):
        assert hold["acquired"] < hold["released"] < following["acquired"]


def test_a_release_is_told_to_all_who_wait(
    tree: Tree, two_sessions: Settings, make_owner: MakeOwner
) -> None:
    """The herd, whose cost ``benchmarks.herd`` measures."""
    default = {**two_sessions.DISTLOCK["default"], "SESSION_TIMEOUT": 20}  # no ping in between
    aliases = ["default", *(f"client-{number}" for number in range(5))]
    two_sessions.DISTLOCK = dict.fromkeys(aliases, default)
    with ExitStack() as stack:
        sessions = {using: await_connection(using).id for using in aliases[1:]}
        stack.enter_context(zk_lock("key"))
        owners = {using: make_owner() for using in sessions}
        waits = {
            using: owner.submit(
                zk_lock("key", using=using, fair=False).acquire, timeout=PATIENCE * 2
            )
            for using, owner in owners.items()
        }
        (head,) = watched_by(tree, len(owners))
        before = packets(tree)
        stack.close()
        for _ in owners:
            using = eventually(
                lambda: next((u for u, w in waits.items() if w.done()), ""), PATIENCE
            )
            assert waits.pop(using).result()
            if waits:
                (following,) = watched_by(tree, len(waits))
                assert following != head
                after = packets(tree)
                assert all(
                    after[sessions[waiting]] > before[sessions[waiting]] for waiting in waits
                )
                head, before = following, after
            owners[using].now(zk_lock("key", using=using).release)


def watched_by(tree: Tree, number: int) -> set[str]:
    """Wait until one node is watched by so many sessions; return its path."""
    eventually(
        lambda: list(tree.watches().values()) == [number], PATIENCE, f"{number} who watch one node"
    )
    return set(tree.watches())
