"""The support matrix: what `tox` can run, the workflow runs."""

from __future__ import annotations

import re

import pytest

from tests.kit.helpers import ROOT

PROJECT = (ROOT / "pyproject.toml").read_text()
FACTORS = re.compile(r"^    ((?:celery|kazoo|django)\d+): ", re.MULTILINE)
WORKFLOW = ROOT / ".github/workflows/ci.yml"


@pytest.mark.parametrize("factor", sorted(set(FACTORS.findall(PROJECT))))
def test_each_version_of_the_matrix_has_a_row_in_the_workflow(factor: str) -> None:
    assert any(factor in row.split("-") for row in _rows())


def test_make_matrix_runs_the_rows_of_the_workflow() -> None:
    fast = re.search(r"^    fast = ((?:.*\\\n)*.*)", PROJECT, re.MULTILINE)
    assert fast
    assert re.findall(r"py[\w-]+|newest", fast[1]) == _rows()


def test_each_python_of_the_classifiers_has_a_row() -> None:
    pythons = re.findall(r"Python :: 3\.(\d+)", PROJECT)
    assert pythons == re.findall(r'env: \S+, python: "3\.(\d+)"', WORKFLOW.read_text())


def test_make_matrix_names_tests_that_exist() -> None:
    names = re.findall(r"tests/[\w/.]+", (ROOT / ".ci/matrix").read_text())
    assert [name for name in names if not (ROOT / name).exists()] == []


def _rows() -> list[str]:
    return re.findall(r"env: (\S+),", WORKFLOW.read_text())
