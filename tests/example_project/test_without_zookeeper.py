"""The demo on a machine without Java: it runs the embedded server, and says so."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.example_project.test_sale import SMALL, environment, hold_sale, visit_demo_shop
from tests.kit.helpers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

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


def test_the_demo_shop_opens_and_closes(env: dict[str, str], tmp_path: Path) -> None:
    assert EMBEDDED in visit_demo_shop(tmp_path, env)


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


@pytest.mark.parametrize("status", [0, 100])
def test_the_output_of_an_installer_is_in_a_log_that_a_failure_names(
    status: int, tmp_path: Path
) -> None:
    for name in ("sh", "dirname", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    for name, does in {
        "apt-get": f"echo noise; exit {status}",
        "sudo": '"$@"',
        "env": "apt-get",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "setup.log"
    done = subprocess.run(
        [".ci/setup", "ps"],
        cwd=ROOT,
        env=environment(PATH=str(tmp_path), SETUP_LOG=str(log)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) is (status != 0)
    assert "noise" in log.read_text()
    assert "noise" not in done.stdout + done.stderr
    assert (f"its output is at the end of {log}" in done.stderr) is (status != 0)


def test_a_wrong_java_home_is_an_error(tmp_path: Path) -> None:
    env = environment(PATH="", JAVA_HOME=str(tmp_path))
    with pytest.raises(AssertionError, match=r"^CommandError: JAVA_HOME is .* or unset it"):
        hold_sale(*SMALL, "--strategy", "zk", env=env)
