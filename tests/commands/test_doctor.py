"""`manage.py distlock doctor`: each finding, what to do about it, and the exit status."""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.security import Permissions
from pytest_django import Settings

from distlock.checks import MIDDLEWARE
from distlock.engine.protocol import Finding
from distlock.management.subcommands.doctor import diagnose
from distlock.session import server_time
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ZooKeeper
from tests.commands.tools import run, run_json
from tests.inspection.tools import ONLY_NOBODY, cleared
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree


def findings() -> dict[str, Finding]:
    """The findings by their subject."""
    return {one.subject: one for one in diagnose(timeout=PATIENCE)}


def with_options(settings: Settings, **options: Any) -> None:
    settings.DISTLOCK = {"default": {**settings.DISTLOCK["default"], **options}}


def test_a_parent_that_the_server_removes_first_is_no_failure(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = Session.remove

    def remove_late(session: Session, path: str, *args: Any) -> None:
        if path.rpartition("/")[2].startswith("@doctor-"):
            tree.client.delete(path)
        remove(session, path, *args)

    monkeypatch.setattr(Session, "remove", remove_late)
    assert findings()["permissions"].level == "ok"


def test_where_all_is_well_everything_is_ok_and_nothing_is_left(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    status, out, errors = run("doctor")
    assert (status, errors) == (0, "")
    found = findings()
    assert {one.level for one in found.values()} == {"ok"}
    server = f"server {zookeeper.servers[0].address}"
    expected = ["settings", server, "session", "timeout", "ticks", "ACL"]
    assert list(found) == [*expected, "permissions", "clock"]
    assert found[server].message.startswith("standalone, 3.")
    assert all(f"{subject}: " in out for subject in expected)
    told = run_json("doctor")
    assert [one["level"] for one in told] == ["ok"] * len(found)
    left = [name for name in tree.children(tree.namespace) if name.startswith("@")]
    assert left == []
    eventually(lambda: not tree.client.exists(tree.namespace), PATIENCE)


def test_the_roles_of_an_ensemble_are_told(
    distlock_settings: Settings, zookeeper_ensemble: ZooKeeper
) -> None:
    zookeeper_ensemble.leader()
    with_options(distlock_settings, HOSTS=zookeeper_ensemble.hosts)
    told = [one.message for name, one in findings().items() if name.startswith("server")]
    assert sorted(one.partition(",")[0] for one in told) == ["follower", "follower", "leader"]
    assert run("doctor")[0] == 0


def test_one_server_that_is_down_is_a_warning(
    distlock_settings: Settings, zookeeper: ZooKeeper
) -> None:
    down = f"127.0.0.1:{free_ports(1)[0]}"
    with_options(distlock_settings, HOSTS=[zookeeper.hosts, down])
    found = findings()
    assert found[f"server {down}"].level == "warning"
    assert "cannot be reached" in found[f"server {down}"].message
    assert found["session"].level == "ok"
    assert found["session"].message.endswith(f" s by {session_for().server}")
    # A server that stands alone beside another one is none of its ensemble.
    assert found["ensemble"].level == "error"
    assert "does not exclude" in found["ensemble"].message
    status, _, errors = run("doctor")
    assert status == 1
    assert "Locks do not work here: ensemble." in errors


@pytest.mark.parametrize("servers", [1, 3])
def test_no_server_that_can_be_reached_is_an_error(
    settings: Settings, caplog: pytest.LogCaptureFixture, servers: int
) -> None:
    hosts = [f"127.0.0.1:{port}" for port in free_ports(servers)]
    settings.DISTLOCK = {"default": {"HOSTS": hosts}}
    status, out, errors = run("doctor")
    assert status == 1
    subjects = [f"server {address}" for address in hosts]
    assert re.findall(r"^error +(server [^ ]+): cannot be reached", out, re.MULTILINE) == subjects
    assert errors == f"Locks do not work here: {', '.join(subjects)}.\n"
    assert caplog.messages == []


def test_without_a_session_the_status_is_69(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        settings.DISTLOCK = {"default": {"HOSTS": hosts, "CONNECT_TIMEOUT": 0.3}}
        status, out, errors = run("doctor", "--budget", "2")
        close_sessions()
    assert status == 69
    assert f"There is no connection to ZooKeeper at {hosts}" in " ".join(out.split())
    assert errors == "Locks do not work here: session.\n"


def test_a_missing_setting_is_a_warning_that_shows_it(settings: Settings) -> None:
    del settings.DISTLOCK
    found = next(diagnose(timeout=0.3))
    assert (found.level, found.subject) == ("warning", "settings")
    assert "no DISTLOCK in the settings" in found.message
    assert 'DISTLOCK = {"default": {"HOSTS": "127.0.0.1:2181"}}' in found.advice


def test_a_middleware_that_is_missing_is_a_warning(distlock_settings: Settings) -> None:
    distlock_settings.ROOT_URLCONF = "tests.testproject.urls"
    distlock_settings.MIDDLEWARE = []
    found = findings()["middleware"]
    assert found.level == "warning"
    assert MIDDLEWARE in found.message
    assert "Put it first" in found.advice


def test_wrong_settings_are_a_finding(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"HOST": "zk1"}}
    (one,) = diagnose()
    assert (one.level, one.subject) == ("error", "settings")
    assert "Did you mean 'HOSTS'" in one.message
    assert run("doctor")[0] == 1
    assert "no alias 'elsewhere'" in run("doctor", "--using", "elsewhere")[1]


@pytest.mark.parametrize(
    ("asked", "granted", "bound"), [(1, 2, "minSessionTimeout"), (60, 20, "maxSessionTimeout")]
)
def test_a_timeout_out_of_the_servers_bounds_is_a_warning(
    distlock_settings: Settings, asked: float, granted: float, bound: str
) -> None:
    with_options(distlock_settings, SESSION_TIMEOUT=asked)
    found = findings()["timeout"]
    assert found.level == "warning"
    assert found.message.startswith(f"{granted} s granted, {asked:g} s asked for")
    assert f"SESSION_TIMEOUT to {granted}" in found.advice
    assert bound in found.advice


@pytest.mark.parametrize(
    ("timeout", "strict", "level"), [(2, False, "warning"), (3, False, "ok"), (2, True, "ok")]
)
def test_a_timeout_of_less_than_three_ticks_is_a_warning_with_the_arithmetic(
    distlock_settings: Settings, timeout: float, strict: bool, level: str
) -> None:
    with_options(distlock_settings, SESSION_TIMEOUT=timeout, STRICT=strict)
    found = findings()["ticks"]
    assert found.level == level
    assert found.message.startswith(f"the session timeout is {timeout} ticks of 1 s (tickTime)")
    if level == "warning":
        assert "1 s + 1.33 s = 2.33 s" in found.message
        assert found.advice.startswith("Set SESSION_TIMEOUT to 3 or more, or STRICT to True.")


@pytest.mark.parametrize(("timeout", "level"), [(1, "warning"), (2, "warning"), (3, "ok")])
def test_a_tick_that_the_servers_do_not_tell_is_found_by_their_shortest_timeout(
    silent_server: ZooKeeper, distlock_settings: Settings, timeout: float, level: str
) -> None:
    with_options(distlock_settings, HOSTS=silent_server.hosts, SESSION_TIMEOUT=timeout)
    threads = set(threading.enumerate())
    found = findings()["ticks"]
    assert found.level == level
    assert "ticks of 1 s (half of the shortest timeout granted, 2 s)" in found.message
    close_sessions()
    eventually(lambda: set(threading.enumerate()) <= threads, PATIENCE)


@pytest.fixture(scope="module")
def silent_server() -> Iterator[ZooKeeper]:
    """A server that tells no more than one as shipped."""
    with ZooKeeper(config={"4lw.commands.whitelist": "srvr"}) as zookeeper:
        yield zookeeper
        close_sessions()


@pytest.mark.usefixtures("distlock_settings")
def test_a_clock_that_is_wrong_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    server_time._clocks.clear()
    in_an_hour = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: in_an_hour)
    found = findings()["clock"]
    assert found.level == "warning"
    assert "ahead of the server's" in found.message
    assert float(found.message.split()[0]) == pytest.approx(3600, abs=PATIENCE * 3)
    assert "NTP" in found.advice


@pytest.mark.parametrize("perms", [Permissions.READ, 0], ids=["read only", "nothing"])
def test_missing_permissions_are_an_error_that_names_them(tree: Tree, perms: int) -> None:
    with cleared(tree):
        tree.client.create(tree.namespace)
        world = tree.client.get_acls(tree.namespace)[0][0]._replace(perms=perms)
        tree.client.set_acls(tree.namespace, [*ONLY_NOBODY, world] if perms else ONLY_NOBODY)
        server_time._clocks.clear()
        found = findings()
        assert found["permissions"].level == "error"
        assert "not possible to make a container node" in found["permissions"].message
        assert "no permission" in found["permissions"].message
        assert "CREATE" in found["permissions"].advice
        assert found["clock"].level == "warning"
        assert run("doctor")[0] == 1


def test_an_open_acl_beside_credentials_is_a_warning(distlock_settings: Settings) -> None:
    with_options(distlock_settings, AUTH=[("digest", "user:password")])
    found = findings()["ACL"]
    assert (found.level, found.advice) == ("warning", 'Set ACL to "creator".')
    assert "password" not in run("doctor")[1]


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("options", "works"),
    [({}, False), ({"enable-threads": True}, True), ({b"threads": b"2"}, True)],
    ids=["none", "enabled", "threads"],
)
def test_uwsgi_without_threads_is_an_error(
    monkeypatch: pytest.MonkeyPatch, options: dict[Any, Any], works: bool
) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(opt=options))
    assert ("threads" not in findings()) == works


def test_more_nodes_than_a_server_can_end_at_once_are_a_warning(
    distlock_settings: Settings,
) -> None:
    with_options(distlock_settings, MAX_NODE_BYTES=2_000_000)
    finding = findings()["nodes"]
    assert finding.level == "warning"
    assert "ZOOKEEPER-4306" in finding.message
