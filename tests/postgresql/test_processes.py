"""Processes that are killed or stopped, on PostgreSQL."""

from __future__ import annotations

import signal
from collections.abc import Callable

from distlock import zk_lock
from tests.kit.helpers import eventually, spawn_python
from tests.kit.services import Postgres
from tests.kit.tools import PATIENCE, Tree
from tests.workers.master import assert_reaper_frees_the_lock_of_a_killed_child

from .tools import SESSION_TIMEOUT, grants

HOLDS = """
import sys, time
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=float(sys.argv[3]))
from distlock import zk_lock
hold = zk_lock("key").__enter__()
print("held")
sys.stdin.readline()
print(hold.lost)
"""


def test_the_session_reaper_frees_the_lock_of_a_killed_child(
    postgres: Postgres, namespace: str
) -> None:
    assert_reaper_frees_the_lock_of_a_killed_child(postgres.new_database(), namespace)


def test_a_stopped_process_finds_its_lock_lost_when_it_goes_on(
    tree: Tree, use: Callable[..., None], postgres: Postgres
) -> None:
    hosts = postgres.new_database()
    use(hosts)
    with spawn_python(HOLDS, hosts, tree.namespace, str(SESSION_TIMEOUT)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        assert not grants()
        eventually(grants, 4 * SESSION_TIMEOUT, "a grant to the next one")
        process.send_signal(signal.SIGCONT)
        assert process.communicate("\n", timeout=PATIENCE)[0] == "True\n"
    zk_lock("key", using="other").release()
