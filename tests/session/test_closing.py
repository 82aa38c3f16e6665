"""The end of a session: soon, in order, and with nothing left.

Calls are bounded. Orderly ends of processes are in `tests/mutex/test_processes`.
"""

from __future__ import annotations

import os
import threading

from pytest_django import Settings

from distlock import zk_lock
from distlock.conf import Configuration
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import inside, within
from tests.session.tools import MakeSession, ephemeral_node


def test_a_close_into_a_black_hole_takes_about_a_second(
    make_session: MakeSession, zookeeper: ZooKeeper
) -> None:
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        one = make_session(hosts=proxy.address)
        proxy.black_hole()
        with within(2):
            one.close()
        assert one.over


def test_a_close_without_a_connection_does_not_wait() -> None:
    one = Session(Configuration(hosts=f"127.0.0.1:{free_ports(1)[0]}"))
    with within(2):
        one.close()
        one.close()
    assert one.over


def test_a_close_while_it_connects_ends_the_session(zookeeper: ZooKeeper) -> None:
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        proxy.delay(0.2)
        one = Session(Configuration(hosts=proxy.address))
        eventually(lambda: proxy.connections)
        assert not one.id
        one.close()
        eventually(lambda: not inside(one)._connection._connection_routine.is_alive())


def test_closed_sessions_leave_no_socket_and_no_thread(make_session: MakeSession) -> None:
    make_session().close()
    eventually(lambda: not named_threads())
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 - a count
    for _ in range(3):
        one = make_session()
        ephemeral_node(one)
        one.close()
    eventually(lambda: not named_threads())
    assert len(os.listdir("/dev/fd")) <= before  # noqa: PTH208


def named_threads() -> list[str]:
    close_sessions()
    names = [thread.name for thread in threading.enumerate()]
    # These belong to the process and to no session, and stay once a test has needed them.
    of_process = {"distlock-timer", "distlock-history"}
    return [name for name in names if name.startswith("distlock-") and name not in of_process]


def test_changed_settings_end_the_sessions_with_the_old_ones(
    distlock_settings: Settings, zookeeper: ZooKeeper
) -> None:
    with zk_lock("k"):
        before = session_for()
    distlock_settings.DISTLOCK = {"default": {"HOSTS": zookeeper.hosts, "NAMESPACE": "/elsewhere"}}
    assert before.over
    with zk_lock("k") as hold:
        assert hold.path.startswith("/elsewhere/")
