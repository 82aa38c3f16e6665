"""The pytest plugin, in a project that has nothing to do with this one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.kit.engines import first_then_deep
from tests.kit.helpers import ROOT

MEMORY = """
from distlock import zk_lock
from distlock.testing import assert_locked, hold

def test_one(distlock_memory):
    assert zk_lock("key").acquire(timeout=0)
    assert_locked("key")

def test_another_begins_with_nothing(distlock_memory):
    with hold("key"):
        assert not zk_lock("key").acquire(timeout=0)
    assert distlock_memory.children("/distlock")
"""

REAL = """
import django
from django.test import override_settings
from distlock import zk_lock

django.setup()

def test_real(zookeeper):
    with override_settings(DISTLOCK={"default": {"HOSTS": zookeeper.hosts}}):
        with zk_lock("key", timeout=15) as hold:
            hold.verify()
"""

BOTH = """
import pytest

@pytest.fixture(autouse=True)
def _memory(distlock_memory):
    pass

def test_both(FIXTURE):
    pass
"""


def run_pytest(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    """Run a project's tests, with our two plugins and no other."""
    (folder / "test_project.py").write_text(tests)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "distlock.testing.fixtures"),
            *("-p", "distlock_chaos.fixtures", "-p", "no:cacheprovider"),
            *("-W", "error", "--rootdir", folder, folder),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_test_has_a_zookeeper_in_memory_of_its_own(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, MEMORY)
    assert "2 passed" in told.stdout, told.stdout + told.stderr


@pytest.mark.usefixtures("zookeeper")  # skips where there is none
def test_a_real_server_is_started_for_who_asks(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, REAL)
    assert "1 passed" in told.stdout, told.stdout + told.stderr


@pytest.mark.parametrize(
    "fixture", first_then_deep(["zookeeper", "zookeeper_embedded", "zookeeper_ensemble"])
)
def test_memory_and_a_server_in_one_test_are_refused(tmp_path: Path, fixture: str) -> None:
    told = run_pytest(tmp_path, BOTH.replace("FIXTURE", fixture))
    assert "1 error" in told.stdout, told.stdout + told.stderr
    assert f"test_both asks for the fixtures distlock_memory and {fixture}" in told.stdout


@pytest.mark.parametrize(
    ("folder", "fixtures"),
    [
        ("", ("distlock_memory", "zookeeper_embedded")),
        ("django-distlock-chaos", ("zookeeper", "zookeeper_ensemble")),
    ],
)
def test_each_plugin_is_an_entry_point(folder: str, fixtures: tuple[str, ...]) -> None:
    written = re.search(
        r"\[project\.entry-points\.pytest11\]\n\w+ = \"(.+)\"\n",
        (ROOT / folder / "pyproject.toml").read_text(),
    )
    assert written
    plugin = import_module(written[1])
    for name in fixtures:
        assert hasattr(plugin, name)


def test_the_plugins_are_loaded_where_there_are_no_settings(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, "import os\ndef test_nothing(): pass\n")
    assert "1 passed" in told.stdout, told.stdout + told.stderr
