"""`make release` on a copy of the repository: what it refuses, and what it makes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import date, datetime, timezone
from pathlib import Path

import pytest

from tests.kit.helpers import ROOT
from tests.packaging.environment import PATIENCE

CHAOS = "django-distlock-chaos"
COPIED = (".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", CHAOS)
AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with the package, and one test in the place of ours."""
    for name in (*COPIED, "distlock"):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    packaging = tmp_path / "tests/packaging"
    packaging.mkdir(parents=True)
    (packaging / "test_it.py").write_text("def test_it() -> None:\n    pass\n")
    shutil.copy(ROOT / "tests/settings.py", tmp_path / "tests/settings.py")
    date_changes(tmp_path, datetime.now(timezone.utc).date())
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path)
    return tmp_path


def date_changes(folder: Path, day: date) -> None:
    changes = folder / "CHANGELOG.md"
    changes.write_text(re.sub(r"(?m)^(## \S+) - .*", rf"\1 - {day}", changes.read_text(), count=1))


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *AUTHOR, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "A commit")


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ".ci/release.py", *arguments]
    who = {f"GIT_COMMITTER_{name}": "a@example.com" for name in ("NAME", "EMAIL")}
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **who},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )


@pytest.mark.deep
def test_a_release_is_built_checked_and_tagged(copy: Path) -> None:
    made = release(copy)
    assert made.returncode == 0, made.stdout + made.stderr
    (tag,) = git(copy, "tag", "--list").split()
    version = tag.removeprefix("v")
    assert sorted(file.name for file in (copy / "dist").iterdir()) == [
        f"django_distlock-{version}-py3-none-any.whl",
        f"django_distlock-{version}.tar.gz",
        f"django_distlock_chaos-{version}-py3-none-any.whl",
        f"django_distlock_chaos-{version}.tar.gz",
    ]
    assert "is there already" in release(copy).stderr


def test_only_the_commit_of_a_tag_on_main_is_built_as_tagged(copy: Path) -> None:
    refused = release(copy, "--tagged")
    assert refused.returncode == 1
    assert "has not the tag v" in refused.stderr
    assert "not on the branch main" in refused.stderr


def test_a_change_that_is_not_committed_is_no_release(copy: Path) -> None:
    (copy / "README.md").write_text("changed")
    assert_refused(copy, "changes that are not committed")


def test_another_branch_is_no_release(copy: Path) -> None:
    git(copy, "switch", "--quiet", "--create", "other")
    assert_refused(copy, "not the branch main")


def test_the_version_has_the_date_of_its_release(copy: Path) -> None:
    date_changes(copy, date(2026, 1, 1))
    commit(copy)
    assert_refused(copy, "CHANGELOG.md does not date it: ## ")


@pytest.mark.parametrize("folder", ["", f"{CHAOS}/"])
def test_both_have_the_version_that_begins_the_change_log(copy: Path, folder: str) -> None:
    project = copy / f"{folder}pyproject.toml"
    changed = re.sub('(?m)^version = ".*"', 'version = "9.9"', project.read_text())
    project.write_text(changed)
    commit(copy)
    assert_refused(copy, f"{folder}pyproject.toml is not ")


def assert_refused(copy: Path, why: str) -> None:
    refused = release(copy)
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        line for line in refused.stderr.splitlines() if why in line
    ]
    assert git(copy, "tag", "--list") == ""
