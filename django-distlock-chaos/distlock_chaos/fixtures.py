"""The pytest plugin: real servers, which run for the whole run of pytest.

Loaded in every run of pytest where the package is installed, so it imports nothing before a fixture
is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock_chaos.server import ZooKeeper


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """One real server; its `hosts` is a value for ``HOSTS``. Skips where none is installed.

    A test that stops or pauses servers starts its own: `distlock_chaos.server.ZooKeeper`.
    """
    yield from _run(nodes=1)


@pytest.fixture(scope="session")
def zookeeper_ensemble() -> Iterator[ZooKeeper]:
    """Three real servers. A test that kills or pauses one starts or resumes it before it ends."""
    yield from _run(nodes=3)


def _run(**options: Any) -> Iterator[ZooKeeper]:
    from distlock_chaos import server  # noqa: PLC0415 - see above

    zookeeper = server.ZooKeeper(**options)
    try:
        yield zookeeper.start()
    except server.ServerNotInstalled as error:
        pytest.skip(str(error))
    finally:
        zookeeper.stop()
