"""Django's own options work before a subcommand and after it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Final

import pytest

from distlock.management.commands.distlock import Command, subcommands
from distlock.management.output import MISCONFIGURED
from tests.kit.helpers import ROOT
from tests.kit.tools import PATIENCE

OPTIONS: Final = (
    *("--settings", "elsewhere", "--pythonpath", "/elsewhere", "--verbosity", "3"),
    *("--traceback", "--no-color", "--force-color"),
)
REQUIRED: Final = {
    "break": ["k"],
    "history": ["k"],
    "limit": ["k", "1"],
    "revoke": ["k"],
    "show": ["k"],
    "run": ["--lock", "k"],
    "why": ["k"],
}


def parse(*arguments: str) -> Namespace:
    return Command().create_parser("manage.py", "distlock").parse_args(arguments)


@pytest.mark.parametrize("name", subcommands())
def test_they_mean_the_same_on_both_sides(name: str) -> None:
    required = REQUIRED.get(name, [])
    after = parse(name, *OPTIONS, *required)
    assert after == parse(*OPTIONS, name, *required)
    assert (after.settings, after.verbosity, after.traceback) == ("elsewhere", 3, True)
    assert parse(name, *required).verbosity == 1


@pytest.mark.parametrize("name", subcommands())
def test_a_help_has_three_examples_that_work_and_folds_them_away(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = subcommands()[name].EXAMPLES
    assert len(examples) == 3
    for line in examples:
        arguments = shlex.split(re.sub(r" [|>] .*", "", line))
        assert parse(*arguments).subcommand == arguments[0]
    with pytest.raises(SystemExit):
        parse(name, "--help")
    shown = capsys.readouterr().out
    assert all(f"  manage.py distlock {line}" in shown for line in examples)
    assert "--pythonpath" not in shown
    assert shown.count("Django's own options") == 1


def test_what_follows_is_the_commands_own() -> None:
    assert parse("run", "--lock", "k", "--", "ls", *OPTIONS).settings is None


def test_the_settings_after_the_subcommand_are_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(
        'INSTALLED_APPS = ["distlock"]\nDISTLOCK = {"default": {"HOTS": "zk1"}}\n'
    )
    arguments = ("distlock", "list", "--settings", "elsewhere", "--pythonpath", str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("DJANGO")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (MISCONFIGURED, "")
    assert "unknown setting 'HOTS'" in ended.stderr
