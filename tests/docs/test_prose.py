"""`make lint` finds sentences that open with a headless Who or What."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.kit.helpers import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def check(*paths: Path) -> str:
    script = ROOT / ".ci/prose.py"
    run = subprocess.run(
        [sys.executable, script, *paths], capture_output=True, text=True, check=False
    )
    assert run.returncode == bool(run.stdout)
    assert not run.stderr
    return run.stdout


@pytest.mark.parametrize(
    "line",
    [
        "Who waits longer gets an error.",
        "## What it costs",
        "- **Whoever can read it** can break it.",
        "| `break` | takes it away. That is recorded. |",
        "| key | Whatever names a lock |",
        "It waits. What comes next is [here](a.md).",
    ],
)
def test_a_headless_opening_is_found(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```\nWhat = 1\n```\n{line}\n")
    assert check(tmp_path).startswith(f"{page}:6: ")


@pytest.mark.parametrize(
    "line",
    [
        "A waiter that waits longer gets an error.",
        "What may be in a key?",
        "`What` is a name.",
        "It tells you what you hold.",
        "<!-- What a reader does not see. -->",
    ],
)
def test_other_sentences_pass(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{line}\n")
    assert not check(page)


def test_docstrings_and_comments_are_read(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""A module.\n\nThat is all."""\nx = """Who are you"""  # Whose turn it is.\n'
        'def f():\n    # Why.\n    """What it does."""\n'
    )
    assert [line.split(":")[1] for line in check(module).splitlines()] == ["3", "4", "7"]


def test_the_documentation_passes() -> None:
    assert not check(ROOT / "README.md", ROOT / "docs", ROOT / ".github")
