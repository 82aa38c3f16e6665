"""An outage of ZooKeeper is one line when it begins, one a minute, and one when it is over."""

from __future__ import annotations

import logging
import logging.config
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from distlock.engine.zookeeper import client
from distlock.logs import loggers
from distlock.session.registry import close_sessions, session_for
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, logged
from tests.kit.tools import PATIENCE, await_connection, inside

kazoo = logging.getLogger("distlock.kazoo")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_sessions()


def no_connection(hosts: str, reason: str) -> str:
    return f"There is no connection to ZooKeeper at {hosts}: {reason}. distlock keeps trying."


def next_rounds() -> None:
    """Wait until some more tries have failed."""
    connection = inside(session_for())._connection
    attempt = connection._connect_attempt
    tries: list[None] = []

    def counted(*args: Any) -> Any:
        tries.append(None)
        return attempt(*args)

    connection._connect_attempt = counted
    eventually(lambda: len(tries) > 3, PATIENCE)
    del connection._connect_attempt


def test_an_outage_is_logged_when_it_begins_and_when_it_is_over(
    own_zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    await_connection()
    assert logged(caplog) == []
    own_zookeeper.servers[0].stop()
    eventually(lambda: logged(caplog), PATIENCE)
    next_rounds()
    gone = no_connection(own_zookeeper.hosts, "The server has closed the connection")
    assert logged(caplog) == [gone]
    own_zookeeper.servers[0].start()
    eventually(lambda: len(logged(caplog)) > 1, PATIENCE)
    await_connection()
    back = rf"The connection to ZooKeeper at {own_zookeeper.hosts} is back after \d+\.\d s\."
    assert [re.fullmatch(back, line) is not None for line in logged(caplog)] == [False, True]


def test_a_long_outage_is_logged_again_with_the_reason_of_the_moment(
    own_zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await_connection()
    own_zookeeper.servers[0].stop()
    eventually(lambda: logged(caplog), PATIENCE)
    next_rounds()
    assert len(logged(caplog)) == 1
    with monkeypatch.context() as patched:
        patched.setattr(loggers, "REPEAT_SECONDS", 0)
        eventually(lambda: len(logged(caplog)) > 1, PATIENCE)
    again = r"There has been no connection to ZooKeeper at .* for \d+ s: Connection refused\."
    assert re.fullmatch(again, logged(caplog)[1])


def test_a_dead_server_beside_one_that_works_is_not_an_outage(
    distlock_settings: Settings, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    down = f"127.0.0.1:{free_ports(1)[0]}"
    options = distlock_settings.DISTLOCK["default"]
    for _ in range(5):  # the client chooses a server at random
        distlock_settings.DISTLOCK = {"default": {**options, "HOSTS": [down, zookeeper.hosts]}}
        await_connection()
        close_sessions()
    assert logged(caplog) == []


def test_a_silent_server_is_named_as_the_reason(
    broken_link: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    session = await_connection()
    session._client.drop()  # the heartbeat does it
    eventually(lambda: len(logged(caplog)) == 2, PATIENCE)
    assert logged(caplog)[0] == no_connection(broken_link.address, "no answer in time")


def test_a_host_name_that_is_unknown_is_named_as_the_reason(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    settings.DISTLOCK = {"default": {"HOSTS": "zk1.example"}}
    session_for()
    eventually(lambda: logged(caplog), PATIENCE)
    reason = "no host name in HOSTS can be resolved"
    assert logged(caplog) == [no_connection("zk1.example", reason)]


# --- kazoo's own lines ---------------------------------------------------------------------------

LEVELS = {
    "nothing": ({}, []),
    "distlock": ({"distlock": {"level": "INFO"}}, []),
    "distlock, in detail": ({"distlock": {"level": "DEBUG"}}, ["DEBUG"]),
    "kazoo": ({"distlock.kazoo": {"level": "WARNING"}}, ["WARNING"]),
}


@pytest.fixture
def kazoo_as_before() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in ("distlock", "distlock.kazoo")}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("kazoo_as_before")
@pytest.mark.parametrize("configured", LEVELS)
def test_kazoos_warnings_are_debug_unless_its_logger_has_a_level(
    configured: str, caplog: pytest.LogCaptureFixture
) -> None:
    loggers, levels = LEVELS[configured]
    logging.config.dictConfig({"version": 1, "incremental": True, "loggers": loggers})
    kazoo.warning("Connection dropped: %s", "refused")
    assert [record.levelname for record in caplog.records] == levels


def test_kazoos_errors_are_errors(caplog: pytest.LogCaptureFixture) -> None:
    client._logger.error("Something new.")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


# --- what a stranger sees ------------------------------------------------------------------------

STRANGER = """
import sys, django
from django.conf import settings
from django.core.management import execute_from_command_line
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "distlock"],
    DISTLOCK={"default": {"HOSTS": sys.argv[1], "CONNECT_TIMEOUT": 0.6}},
)
execute_from_command_line(["manage.py", "distlock", "list"])
"""


def test_with_djangos_default_logging_a_command_says_it_in_two_lines() -> None:
    hosts = f"127.0.0.1:{free_ports(1)[0]}"
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, hosts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 69
    first, second = done.stderr.splitlines()
    assert first == no_connection(hosts, "Connection refused")
    assert second.startswith(f"CommandError: {first.removesuffix(' distlock keeps trying.')}")
