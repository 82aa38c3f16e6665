"""The pytest plugin: a ZooKeeper in memory, an embedded one, or a real one.

Loaded in every run of pytest where distlock is installed, so it imports nothing before a fixture is
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.embedded.tree import MemoryTree
    from distlock_chaos.server import ZooKeeper

    from .embedded import EmbeddedProcess


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


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """One real server for the whole run; its `hosts` is a value for ``HOSTS``.

    A test that stops or pauses servers starts its own: `distlock_chaos.server.ZooKeeper`.
    """
    yield from _run(nodes=1)


@pytest.fixture(scope="session")
def zookeeper_ensemble() -> Iterator[ZooKeeper]:
    """Three real servers. A test that kills or pauses one starts or resumes it before it ends."""
    yield from _run(nodes=3)


def _run(**options: Any) -> Iterator[ZooKeeper]:
    reason = "A real server needs: pip install django-distlock-chaos"
    server = pytest.importorskip("distlock_chaos.server", reason=reason)
    zookeeper = server.ZooKeeper(**options)
    try:
        yield zookeeper.start()
    except server.ServerNotInstalled as error:
        pytest.skip(str(error))
    finally:
        zookeeper.stop()
