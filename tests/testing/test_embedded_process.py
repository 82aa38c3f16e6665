"""An embedded ZooKeeper for tests with several processes."""

from __future__ import annotations

import multiprocessing
import os
import unittest
from pathlib import Path
from typing import Any

import pytest
from django.test import SimpleTestCase, override_settings
from pytest_django import Settings

from distlock import zk_lock
from distlock.session.registry import close_sessions, session_for
from distlock.testing import (
    EmbeddedProcess,
    EmbeddedZooKeeperTestCase,
    assert_locked,
    embedded_zookeeper,
    memory_zookeeper,
)
from distlock.testing.embedded import embedded_process
from tests.kit.helpers import alive, eventually, spawn_python
from tests.kit.tools import PATIENCE
from tests.testing.counting import KEY, TIMES, count

pytestmark = pytest.mark.deep

PROCESSES = 3


@pytest.fixture
def embedded_settings(
    settings: Settings, zookeeper_embedded: EmbeddedProcess, namespace: str
) -> Settings:
    default = {"HOSTS": zookeeper_embedded.hosts, "NAMESPACE": namespace, "TIMEOUT": PATIENCE}
    settings.DISTLOCK = {"default": default}
    return settings


def await_line(key: str, length: int) -> None:
    eventually(lambda: len(zk_lock(key).participants()) == length, PATIENCE, f"a line of {length}")


def count_together(hosts: str, namespace: str, folder: Path, method: str) -> None:
    """Let processes queue behind this one, and count."""
    file = folder / "number"
    file.write_text("0")
    context: Any = multiprocessing.get_context(method)
    arguments = (hosts, namespace, str(file))
    children = [context.Process(target=count, args=arguments) for _ in range(PROCESSES)]
    with zk_lock(KEY):
        for child in children:
            child.start()
        await_line(KEY, 1 + PROCESSES)
        assert file.read_text() == "0"
    for child in children:
        child.join(PATIENCE)
    assert [child.exitcode for child in children] == [0] * PROCESSES
    assert file.read_text() == f"{PROCESSES * TIMES}"


# Python 3.12 warns of a fork beside other threads, which sessions are made for.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.usefixtures("embedded_settings")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_contend_for_a_lock(
    zookeeper_embedded: EmbeddedProcess, namespace: str, tmp_path: Path, method: str
) -> None:
    count_together(zookeeper_embedded.hosts, namespace, tmp_path, method)


# --- blocks and test cases -----------------------------------------------------------------------


class TestWithProcesses(EmbeddedZooKeeperTestCase, SimpleTestCase):
    """A test case, here under pytest."""

    @pytest.fixture(autouse=True)
    def _closed_at_the_end(self) -> None:
        self.addCleanup(close_sessions)  # the server is the class's

    def test_this_process_uses_it_too(self) -> None:
        with zk_lock("key", timeout=PATIENCE):
            assert_locked("key")
        assert session_for().conf.hosts == self.zookeeper.hosts


def test_the_server_of_a_case_ends_with_it() -> None:
    class Case(EmbeddedZooKeeperTestCase):
        def test_nothing(self) -> None:
            pass

    result = unittest.TestResult()
    unittest.TestSuite([Case("test_nothing")]).run(result)
    assert result.wasSuccessful(), (result.failures, result.errors)
    assert not alive(Case.zookeeper.pid)


@override_settings(
    DISTLOCK={
        "default": {"HOSTS": "127.0.0.1:1", "TIMEOUT": PATIENCE, "TLS": {"verify": False}},
        "other": {"HOSTS": "127.0.0.1:1", "NAMESPACE": "/other"},
    }
)
def test_a_block_has_all_aliases_on_it_with_their_other_settings() -> None:
    with embedded_zookeeper() as server:
        assert zk_lock("key").acquire()
        assert session_for("other").conf.hosts == session_for().conf.hosts == server.hosts
        assert session_for("other").conf.namespace == "/other"
    assert not zk_lock("key").held
    assert session_for().conf.hosts == "127.0.0.1:1"


def test_it_is_used_beside_no_other() -> None:
    with embedded_zookeeper():
        with pytest.raises(RuntimeError, match="within embedded_zookeeper"), memory_zookeeper():
            pass
        with zk_lock("key", timeout=PATIENCE) as held:
            held.verify()
    with (
        memory_zookeeper(),
        pytest.raises(RuntimeError, match="within memory_zookeeper"),
        embedded_zookeeper(),
    ):
        pass


# --- the process ---------------------------------------------------------------------------------


def test_a_forked_child_does_not_end_it() -> None:
    code = """
import os
from distlock.testing.embedded import embedded_process
with embedded_process() as server:
    child = os.fork()
    if child == 0:
        raise SystemExit
    os.waitpid(child, 0)
    print(server.pid, flush=True)
    input()
"""
    with spawn_python(code) as parent:
        assert parent.stdout is not None
        assert alive(int(parent.stdout.readline()))


def test_a_server_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "distlock"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChildProcessError, match=r"No module named distlock\.embedded"):
        embedded_process().__enter__()
