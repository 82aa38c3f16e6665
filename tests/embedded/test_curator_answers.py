"""What Java's Curator asks of a server: the embedded one answers as ZooKeeper does.

Source: Curator's ``TestLockACLs`` and ``TestFramework.testBackgroundConfigPathWithNamespace``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from benchmarks import curator
from distlock.embedded.server import EmbeddedZooKeeper
from distlock_chaos.fixtures import _run
from distlock_chaos.server import ZooKeeper
from tests.kit.tools import PATIENCE

SOURCE = Path(__file__).with_name("Answers.java")


@pytest.fixture(scope="module")
def real() -> Iterator[ZooKeeper]:
    yield from _run()


def test_an_access_list_of_addresses_and_the_configuration(
    real: ZooKeeper, embedded: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    try:
        command = curator.command(SOURCE, tmp_path, newer=False)
    except curator.CuratorMissing as error:
        pytest.skip(str(error))
    path = f"/answers-{uuid4()}"
    said = [
        subprocess.run(
            [*command, hosts, path],
            check=True,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        ).stdout
        for hosts in (real.hosts, embedded.hosts)
    ]
    assert said[0] == said[1]
    assert "'ip,'127.0.0.1" in said[1]
    assert "config 0" in said[1]
