"""The demo on a machine without Java: it runs the embedded server, and says so."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.example_project.test_sale import SMALL, environment, hold_sale
from tests.kit.helpers import ROOT

pytestmark = pytest.mark.deep

EMBEDDED = "(embedded; for development: one process, nothing on disk, no replication)\n"


@pytest.fixture
def env() -> dict[str, str]:
    # Neither Java nor anything else: the demo needs only its own Python.
    return environment(PATH="", JAVA_HOME="")


@pytest.mark.parametrize(
    "arguments", [("zk", "--kill", "1"), ("zk_fenced", "--pause", "1")], ids=" ".join
)
def test_a_sale_is_exact(env: dict[str, str], arguments: tuple[str, ...]) -> None:
    done = hold_sale(*SMALL, "--strategy", *arguments, env=env)
    report = json.loads(done.stdout)
    assert report["exact"]
    assert [hit["held"] for hit in report["kills"] + report["pauses"]][-1]
    assert done.stderr.startswith("ZooKeeper ready on 127.0.0.1:")
    assert done.stderr.endswith(EMBEDDED)


@pytest.mark.parametrize("target", ["demo", "serve"])
def test_make_goes_on_where_zookeeper_cannot_be_installed(target: str, tmp_path: Path) -> None:
    for name in ("make", "sh", "dirname", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    done = subprocess.run(
        # Nothing is sold here.
        [tmp_path / "make", "--old-file=.venv/.ready", "SALE=:", "SHOP=:", target],
        cwd=ROOT,
        env=environment(PATH=str(tmp_path), JAVA_HOME=""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Java was not found" in done.stderr
