"""The package as it is published, built and installed once for a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.helpers import ROOT
from tests.packaging.environment import PATIENCE, Environment


class Built(NamedTuple):
    """The two files that are published."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, and the wheel that was built from it."""
    return _built(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def built_chaos(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The same of django-distlock-chaos."""
    return _built(ROOT / "django-distlock-chaos", tmp_path_factory.mktemp("dist-chaos"))


def _built(project: Path, folder: Path) -> Built:
    made = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, project],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel."""
    return Environment(tmp_path_factory.mktemp("environment"), built.wheel)
