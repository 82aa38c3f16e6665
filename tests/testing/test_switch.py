"""A ZooKeeper in memory for a block, a test case, and by no setting."""

from __future__ import annotations

import subprocess
import sys
import unittest
from typing import Any

import pytest
from django.test import TestCase
from pytest_django import Settings

from distlock import (
    LockUnavailable,
    zk_lease,
    zk_lock,
    zk_semaphore,
)
from distlock.session.registry import session_for
from distlock.testing import (
    DistlockTestCase,
    assert_locked,
    memory_zookeeper,
)
from tests.kit.helpers import spawn_python
from tests.kit.tools import PATIENCE
from tests.testing.conftest import NOWHERE


@pytest.fixture(autouse=True)
def _nowhere(options: dict[str, Any]) -> None:
    """Before all other fixtures."""


# --- the switch ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_a_block_has_a_zookeeper_and_outside_it_there_is_none() -> None:
    with memory_zookeeper() as tree:
        assert zk_lock("key").acquire(timeout=0)
        assert tree.children("/distlock/key")
        assert session_for().conf.hosts != NOWHERE
    with pytest.raises(LockUnavailable):
        zk_lock("key").acquire()
    assert session_for().conf.hosts == NOWHERE


def test_each_block_begins_with_nothing() -> None:
    for _ in range(2):
        with memory_zookeeper():
            for lock in (zk_lock("key"), zk_semaphore("s", 1), zk_lease("lease", 60, owner="me")):
                assert not lock.locked()
                assert lock.acquire(timeout=0)
    assert not zk_lock("key").held


@pytest.mark.usefixtures("memory")
def test_two_cannot_be_within_each_other() -> None:
    with pytest.raises(RuntimeError, match="cannot be within memory_zookeeper"), memory_zookeeper():
        pass
    assert zk_lock("key").acquire(timeout=0)


@pytest.mark.usefixtures("distlock_settings")
def test_it_does_not_begin_while_locks_are_held_on_a_real_server() -> None:
    with zk_lock("key") as held:
        with pytest.raises(RuntimeError, match="holds locks at"), memory_zookeeper():
            pass
        held.verify()


def test_settings_of_a_test_keep_the_zookeeper(settings: Settings) -> None:
    with memory_zookeeper() as tree:
        settings.DISTLOCK = {"default": {"HOSTS": "redis://127.0.0.1:1/0", "NAMESPACE": "/other"}}
        with zk_lock("key", timeout=PATIENCE):
            assert tree.children("/other") == ["key"]


def test_a_forked_child_shares_it() -> None:
    code = """
import os, django
django.setup()
from distlock import zk_lock
from distlock.testing import memory_zookeeper
with memory_zookeeper():
    zk_lock("key").acquire()
    if os.fork() == 0:
        print(zk_lock("key").acquire(timeout=0), zk_lock("other").acquire(timeout=0), flush=True)
        os._exit(0)
    os.wait()
"""
    with spawn_python(code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "False True\n"


# --- test cases ----------------------------------------------------------------------------------


def test_each_test_of_a_case_has_a_zookeeper_of_its_own_from_before_its_set_up() -> None:
    class Case(DistlockTestCase):
        def setUp(self) -> None:
            assert zk_lock("of set-up").acquire(timeout=0)

        def test_one(self) -> None:
            assert_locked("of set-up")
            assert self.zookeeper.children("/distlock")

        def test_two(self) -> None:
            assert_locked("of set-up")

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert result.testsRun == 2
    assert result.wasSuccessful(), (result.failures, result.errors)


class TestWithADatabase(DistlockTestCase, TestCase):
    """Django's test cases under pytest."""

    def setUp(self) -> None:
        assert zk_lock("of set-up").acquire(timeout=0)

    def test_it(self) -> None:
        with zk_lock("key", atomic=True):
            assert_locked("of set-up")
            assert len(assert_locked("key")) == 1


# --- the package ---------------------------------------------------------------------------------


def test_importing_it_imports_neither_pytest_nor_the_rest() -> None:
    code = (
        "import sys, distlock.testing\n"
        "print([name for name in ('pytest', 'unittest', 'distlock.testing.tools') "
        "if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
