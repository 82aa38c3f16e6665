"""Switching this process over to a ZooKeeper in memory, for a block, a test or a test case.

Only code can do it. There is no setting for it, so no deployment can have it by a copied line or a
forgotten variable: processes with a ZooKeeper each would exclude nobody, and say nothing.
"""

from __future__ import annotations

import unittest
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.core.signals import setting_changed

from distlock.embedded.tree import MemoryTree
from distlock.engine.client import Client
from distlock.locks import held_permits
from distlock.owner.owner import current
from distlock.session import session as session_module
from distlock.session.registry import sessions

from .memory_client import MemoryClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def memory_zookeeper() -> Iterator[MemoryTree]:
    """Let this process use an empty ZooKeeper in memory for the block; also a decorator.

    ::

        with memory_zookeeper():
            with zk_lock("stock:42"):
                ...

    All aliases of ``DISTLOCK`` share it, each with a session of its own and with its settings as
    they are, but for ``HOSTS``, ``AUTH``, ``TLS`` and ``ACL``, which mean nothing here. Other
    processes do not see it. Locks that are held when the block ends are gone.

    :raises RuntimeError: there is one already, or this process holds locks on a real server
    """
    _refuse_what_is_in_use()
    tree = MemoryTree()
    session_module.new_client = cast("type[Client]", partial(MemoryClient, tree=tree))
    _begin_anew()
    try:
        yield tree
    finally:
        current().release_all()
        session_module.new_client = Client
        _begin_anew()
        held_permits.clear()
        tree.closed.set()


def _begin_anew() -> None:
    """Let everything that goes by the setting forget what it knows; sessions end."""
    setting_changed.send(
        sender=memory_zookeeper,
        setting="DISTLOCK",
        value=getattr(settings, "DISTLOCK", None),
        enter=True,
    )


def _refuse_what_is_in_use() -> None:
    if session_module.new_client is not Client:
        raise RuntimeError(
            "There is a ZooKeeper in memory already: memory_zookeeper(), DistlockTestCase and the "
            "fixture distlock_memory cannot be within each other. Use one of them."
        )
    for session in sessions():
        if session.heartbeat.beneficiaries():
            raise RuntimeError(
                f"This process holds locks at {session.conf.hosts}, or waits for some. Release "
                "them before memory_zookeeper() begins; a test uses either it or a real server."
            )


class DistlockTestCase(unittest.TestCase):
    """A test case in which each test has an empty ZooKeeper in memory, from before its ``setUp``.

    It goes first where there are other base classes::

        class CheckoutTests(DistlockTestCase, django.test.TestCase):
            def test_sold_out(self):
                with hold("stock:42"):
                    ...
    """

    #: The ZooKeeper of this test.
    zookeeper: MemoryTree

    def run(self, result: unittest.TestResult | None = None) -> Any:
        """Run the test with a ZooKeeper of its own."""
        with memory_zookeeper() as self.zookeeper:
            return super().run(result)
