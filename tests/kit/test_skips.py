from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .helpers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SUITE = {
    "test_fixture.py": """
import pytest

@pytest.fixture
def part():
    pytest.skip("the part is missing")

def test_needs_the_part(part):
    pass

@pytest.mark.xfail
def test_known():
    raise AssertionError
""",
    "test_module.py": """
import pytest
pytest.importorskip("a_module_that_is_missing")
""",
}


@pytest.mark.parametrize(
    ("ci", "status", "summary"),
    [("", 0, "2 skipped, 1 xfailed"), ("true", 1, "1 xfailed, 2 errors")],
)
def test_a_skip_is_a_failure_in_ci(tmp_path: Path, ci: str, status: int, summary: str) -> None:
    for name, text in SUITE.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-rsE",
            "-p",
            "tests.kit.skips",
            "-p",
            "no:django",
            "-p",
            "no:cacheprovider",
            "--continue-on-collection-errors",
            tmp_path,
        ],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == status, run.stdout
    assert summary in run.stdout
    assert "the part is missing" in run.stdout
    assert ("CI=true forbids" in run.stdout) is (ci == "true")
