"""The pytest plugin: a ZooKeeper in memory, or an embedded one.

Loaded in every run of pytest where distlock is installed, so it imports nothing before a fixture is
asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlock.embedded.tree import MemoryTree

from .embedded import EmbeddedProcess

pytest.register_assert_rewrite("distlock.testing.engine")


@pytest.fixture
def distlock_memory(request: pytest.FixtureRequest) -> Iterator[MemoryTree]:
    """An empty ZooKeeper in memory for all locks of this test; see `memory_zookeeper`."""
    from .switch import memory_zookeeper  # noqa: PLC0415 - see above

    servers = {"zookeeper", "zookeeper_embedded", "zookeeper_ensemble"} & set(request.fixturenames)
    if servers:
        pytest.fail(
            f"{request.node.name} asks for the fixtures distlock_memory and {min(servers)}, but "
            "locks are in one place: leave out distlock_memory (it may be autouse) to use the "
            f"server, or {min(servers)} to use the ZooKeeper in memory.",
            pytrace=False,
        )
    with memory_zookeeper() as tree:
        yield tree


@pytest.fixture(scope="session")
def zookeeper_embedded() -> Iterator[EmbeddedProcess]:
    """The embedded server, a process for the whole run; its `hosts` is a value for ``HOSTS``."""
    from .embedded import embedded_process  # noqa: PLC0415 - see above

    with embedded_process() as server:
        yield server
