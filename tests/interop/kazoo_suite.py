"""kazoo's own tests, which its package contains, on the embedded server.

A plugin of pytest: `make test-all` runs it, on the installed kazoo. kazoo's tests ask for a cluster
of three servers, which come and go; here these are three addresses of one embedded server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from types import ModuleType
from typing import Any, Final

import pytest

from distlock.embedded.server import EmbeddedZooKeeper
from distlock_chaos.proxy import TcpProxy

#: What cannot run here: a part of the name of a test → the reason.
LEFT_OUT: Final = {
    "eventlet": "eventlet is not installed",
    "TestReconfig": "reconfiguration needs several servers",
    "TestReadOnlyMode": "a server that has lost its quorum needs several servers",
    "TestSSLClient": "the embedded server has no TLS",
    "SASL": "the embedded server has no SASL",
}
#: Its connection is dropped after a request, which has to come before the answer.
NEEDS_LATE_ANSWERS: Final = "test_connection_dropped"


class Server:
    """One address of the embedded server, in kazoo's words for a server."""

    running = True

    def __init__(self, link: TcpProxy) -> None:
        self.address = link.address
        self.stop = link.cut
        self.run = link.pass_through
        self.delay = link.delay


class Cluster(list[Server]):
    """kazoo's `ZookeeperCluster`, which would start Java; it lasts as long as the process."""

    def __init__(self, **_: Any) -> None:
        port = EmbeddedZooKeeper().__enter__().port
        super().__init__(Server(TcpProxy("127.0.0.1", port).__enter__()) for _ in range(3))

    def terminate(self) -> None:
        """Go on: each test has nodes of its own."""

    def get_logs(self) -> Iterable[str]:
        """Return nothing: pytest shows what the server logs."""
        return ()


def pytest_configure() -> None:
    """Let kazoo's tests find the cluster."""
    module: Any = ModuleType("kazoo.testing.common")
    module.ZookeeperCluster = Cluster
    sys.modules[module.__name__] = module
    os.environ |= {"CI": "true", "ZOOKEEPER_VERSION": "3.8.0"}  # kazoo's tests ask for both


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests out; a name that is not there any more is an error."""
    left_out = [item for item in items if any(part in item.nodeid for part in LEFT_OUT)]
    for part in LEFT_OUT:
        assert any(part in item.nodeid for item in left_out), f"There is no {part} any more."
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let answers come late where a test takes that for granted."""
    from kazoo.testing.harness import get_global_cluster  # noqa: PLC0415 - see pytest_configure

    for server in get_global_cluster():
        server.delay(0.3 if NEEDS_LATE_ANSWERS in item.nodeid else 0)
    return (yield)
