"""The support matrix: what `tox` can run, the workflow runs."""

from __future__ import annotations

import re

import pytest

from tests.kit.helpers import ROOT

FACTORS = re.compile(r"^    ((?:celery|kazoo|django)\d+): ", re.MULTILINE)
WORKFLOW = ROOT / ".github/workflows/ci.yml"


@pytest.mark.parametrize(
    "factor", sorted(set(FACTORS.findall((ROOT / "pyproject.toml").read_text())))
)
def test_each_version_of_the_matrix_has_a_row_in_the_workflow(factor: str) -> None:
    rows = re.findall(r"env: (\S+),", WORKFLOW.read_text())
    assert any(factor in row.split("-") for row in rows)
