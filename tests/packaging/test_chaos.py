"""The distribution django-distlock-chaos, and the subcommand with it and without it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from distlock.management.commands.distlock import CHAOS_IS_MISSING
from tests.kit.helpers import ROOT
from tests.packaging.conftest import Built
from tests.packaging.environment import Environment

MANAGE = """
import sys
import django
from django.conf import settings
from django.core.management import CommandError, call_command

settings.configure(INSTALLED_APPS=sys.argv[1].split(","))
django.setup()
try:
    call_command("distlock", "chaos", *sys.argv[2:])
except CommandError as error:
    print(error)
"""
RUN = ("--seconds=10", "--processes=2", "--fault=kill")


@pytest.fixture(scope="module")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel of distlock, for the other one to come."""
    return Environment(tmp_path_factory.mktemp("chaos"), built.wheel)


@pytest.mark.usefixtures("zookeeper")  # which skips where none is installed
@pytest.mark.deep
def test_the_subcommand_is_missed_until_it_is_installed(
    environment: Environment, built_chaos: Built, tmp_path: Path
) -> None:
    assert environment.run("-c", MANAGE, "distlock", *RUN, cwd=tmp_path).strip() == CHAOS_IS_MISSING
    environment.install(built_chaos.wheel)
    assert environment.run("-c", MANAGE, "distlock", *RUN, cwd=tmp_path).strip() == CHAOS_IS_MISSING
    output = environment.run("-c", MANAGE, "distlock,distlock_chaos", *RUN, cwd=tmp_path)
    assert output.rstrip().endswith("; passed")


def test_the_wheel_holds_all_files_of_the_app_and_no_others(built_chaos: Built) -> None:
    project = ROOT / "django-distlock-chaos"
    files = {
        path.relative_to(project).as_posix()
        for path in (project / "distlock_chaos").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built_chaos.wheel) as wheel:
        names = wheel.namelist()
        (licence,) = (name for name in names if name.endswith("/licenses/LICENSE"))
        assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert {name for name in names if ".dist-info/" not in name} == files


def test_its_metadata_is_right(built: Built, built_chaos: Built) -> None:
    (ours, theirs) = (metadata(one) for one in (built, built_chaos))
    assert ours.version == theirs.version
    (required,) = (one for one in theirs.requires_dist or () if one.marker is None)
    assert str(required) == f"django-distlock=={ours.version}"
    assert not re.search(r"\]\((?!https?:)", theirs.description or "links lead nowhere](")


def metadata(built: Built) -> Metadata:
    with zipfile.ZipFile(built.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(wheel.read(name), validate=True)
