"""The sweep removes what has ended, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from io import StringIO
from typing import Any

import pytest
from celery import Celery
from django.core.management import CommandError, call_command

from distlock import zk_lease
from distlock.lease.persistent import Swept, sweep
from distlock.management.subcommands import sweep as subcommand
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree
from tests.lease.tools import LONG, await_end, node_path

pytestmark = pytest.mark.usefixtures("tree")

MANY = 1000
AT_A_TIME = 50


def let_end(count: int) -> None:
    """Take so many leases, and wait until the time of all of them is up."""

    async def take() -> None:
        leases = [zk_lease(f"ended-{number}", 0.01, owner="me") for number in range(count - 1)]
        for start in range(0, len(leases), AT_A_TIME):
            some = leases[start : start + AT_A_TIME]
            assert all(await asyncio.gather(*(lease.aacquire() for lease in some)))

    asyncio.run(take())
    last = zk_lease("ended-last", 0.01, owner="me")
    assert last.acquire()
    await_end(last)


def test_a_thousand_ended_leases_are_swept_and_the_tree_is_as_it_was(tree: Tree) -> None:
    assert not tree.client.exists(tree.namespace)
    let_end(MANY)
    assert sweep() == Swept(MANY, 0, [])
    eventually(lambda: not tree.client.exists(tree.namespace), PATIENCE)


def test_celery_finds_a_task_that_sweeps() -> None:
    app = Celery(set_as_current=False)
    app.autodiscover_tasks(["distlock"], force=True)
    let_end(3)
    assert zk_lease("live", LONG, owner="me").acquire()
    assert app.tasks["distlock.sweep"].apply().get() == 3
    assert app.tasks["distlock.sweep"].apply(kwargs={"using": "default"}).get() == 0


def test_live_leases_and_unreadable_nodes_are_left_alone(tree: Tree) -> None:
    live = zk_lease("live", LONG, owner="me")
    assert live.acquire()
    path = node_path(tree, "unreadable")
    tree.client.create(path, b"?")
    let_end(3)
    assert sweep() == Swept(3, 1, [path])
    assert sweep() == Swept(0, 1, [path])
    live.renew()
    assert tree.client.get(path)[0] == b"?"


def test_two_sweeps_at_a_time_remove_each_lease_once(make_owner: MakeOwner) -> None:
    let_end(300)
    start = threading.Barrier(2)

    def both(using: str) -> Swept:
        start.wait(PATIENCE)
        return sweep(using)

    sweeps = [make_owner().submit(both, using) for using in ("default", "other")]
    assert sum(one.result(2 * PATIENCE).removed for one in sweeps) == 300
    assert sweep() == Swept(0, 0, [])


def test_leases_that_are_in_use_survive_a_sweep_at_any_time(make_owner: MakeOwner) -> None:
    """Each is taken, renewed and released over and over, and ended ones lie between them."""
    done = threading.Event()

    def use(owner: str, using: str) -> int:
        rounds = 0
        while not done.is_set() or not rounds:
            lease = zk_lease(f"used-{owner}", LONG, owner=owner, using=using)
            assert lease.acquire()
            lease.renew()
            lease.release()
            assert zk_lease(f"left-{owner}", 0.01, owner=f"{owner}-{rounds}", using=using).acquire()
            rounds += 1
        return rounds

    users = [make_owner().submit(use, str(n), ["default", "other"][n % 2]) for n in range(4)]
    try:
        eventually(lambda: sweep().removed, 2 * PATIENCE)
        for _ in range(50):
            assert sweep().unreadable == []
    finally:
        done.set()
    assert all(user.result(PATIENCE) for user in users)


# --- the command ---------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[str, str]:
    out, errors = StringIO(), StringIO()
    call_command("distlock", "sweep", *arguments, stdout=out, stderr=errors)
    return out.getvalue(), errors.getvalue()


def test_nodes_that_cannot_be_read_end_it_with_status_3(tree: Tree) -> None:
    path = node_path(tree, "unreadable")
    tree.client.create(path, b"?", makepath=True)
    with pytest.raises(CommandError, match=path) as error:
        run()
    assert error.value.returncode == subcommand.UNREADABLE == 3


def test_an_interrupt_ends_it_with_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subcommand, "sweep", interrupt)
    with pytest.raises(CommandError, match="Interrupted") as error:
        run()
    assert error.value.returncode == 130
