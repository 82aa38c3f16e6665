"""Switching this process over to a ZooKeeper of the tests', for a block, a test or a test case.

Only code can give it one in memory. There is no setting for that, so no deployment can have it by a
copied line or a forgotten variable: processes with a ZooKeeper each would exclude nobody, and say
nothing.
"""

from __future__ import annotations

import unittest
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.signals import setting_changed

from distlock import conf
from distlock.embedded.server import EmbeddedZooKeeper
from distlock.engine.hosts import settings_of
from distlock.locks import held_permits
from distlock.owner.owner import current
from distlock.session.registry import sessions

from .embedded import EmbeddedProcess, embedded_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.embedded.tree import MemoryTree

#: The one of this module's blocks that this process is in.
_in_use: list[str] = []


@contextmanager
def memory_zookeeper() -> Iterator[MemoryTree]:
    """Let this process use an empty ZooKeeper in memory for the block; also a decorator.

    All aliases of ``DISTLOCK`` share it, each with a session of its own and with its settings as
    they are, but for ``HOSTS``, ``AUTH``, ``TLS`` and ``ACL``, which mean nothing here. Of other
    processes, only those see it that are forked within the block. Locks that are held when the
    block ends are gone.

    :raises RuntimeError: there is one already, or this process holds locks on a real server
    """
    with (
        _alone("memory_zookeeper()"),
        EmbeddedZooKeeper(session_timeouts=(0.0, inf), patient=True) as zookeeper,
        _used(zookeeper.hosts, auth=(), acl="open"),
    ):
        yield zookeeper.tree


@contextmanager
def embedded_zookeeper() -> Iterator[EmbeddedProcess]:
    """Run an embedded ZooKeeper as a process, and let this one use it for the block; decorates too.

    ::

        with embedded_zookeeper() as zookeeper:
            start_a_worker(ZOOKEEPER_HOSTS=zookeeper.hosts)
            with zk_lock("stock:42"):
                ...

    It needs no Java. All aliases of ``DISTLOCK`` use it, with their settings as they are, but for
    ``HOSTS`` and ``TLS``. Other processes need to be told its address. Locks that are held when the
    block ends are gone; the server ends, also when this process is killed.

    :raises RuntimeError: there is one already, or this process holds locks on another server
    :raises ChildProcessError: it did not start
    """
    with _alone("embedded_zookeeper()"), embedded_process() as server, _used(server.hosts):
        yield server


@contextmanager
def _used(hosts: str, **changes: Any) -> Iterator[None]:
    """Let all aliases use one server for the block, also those that are set within it."""

    def adapted(given: conf.Configuration) -> conf.Configuration:
        chroot = settings_of(given.hosts).chroot(given.hosts)
        return replace(given, hosts=hosts + chroot, tls=None, **changes)

    before, conf.adapted = conf.adapted, adapted
    _begin_anew()
    try:
        yield
    finally:
        current().release_all()
        conf.adapted = before
        _begin_anew()


def _begin_anew() -> None:
    """Let everything that goes by the setting forget what it knows; sessions end."""
    value = getattr(settings, "DISTLOCK", None)
    setting_changed.send(sender=memory_zookeeper, setting="DISTLOCK", value=value, enter=True)


@contextmanager
def _alone(block: str) -> Iterator[None]:
    """Refuse a block where this process uses another ZooKeeper."""
    if _in_use:
        raise RuntimeError(
            f"{block} cannot be within {_in_use[0]}, as locks are in one place. The test cases and "
            "the fixture distlock_memory are such blocks, too. Use one of them."
        )
    for session in sessions():
        if session.heartbeat.beneficiaries():
            raise RuntimeError(
                f"This process holds locks at {session.conf.hosts}, or waits for some. Release "
                f"them before {block} begins; a test uses either it or another server."
            )
    _in_use.append(block)
    try:
        yield
    finally:
        held_permits.clear()
        _in_use.clear()


class DistlockTestCase(unittest.TestCase):
    """A test case in which each test has an empty ZooKeeper in memory, from before its ``setUp``.

    It goes first where there are other base classes: ``(DistlockTestCase, TestCase)``.
    """

    #: The ZooKeeper of this test.
    zookeeper: MemoryTree

    def run(self, result: unittest.TestResult | None = None) -> Any:
        """Run the test with a ZooKeeper of its own."""
        with memory_zookeeper() as self.zookeeper:
            return super().run(result)


class EmbeddedZooKeeperTestCase(unittest.TestCase):
    """A test case whose tests, and the processes that they start, share an embedded ZooKeeper.

    It goes first where there are other base classes. The server runs for the tests of the class, as
    `embedded_zookeeper` does for a block.
    """

    #: The server; its `hosts` is what other processes need.
    zookeeper: EmbeddedProcess

    @classmethod
    def setUpClass(cls) -> None:
        with ExitStack() as stack:
            cls.zookeeper = stack.enter_context(embedded_zookeeper())
            super().setUpClass()
            cls.addClassCleanup(stack.pop_all().close)
