"""The measurement of a user's unit tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.unit_tests import PROJECT, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["memory", "process"])
def test_the_project_passes_on_each_kind_of_zookeeper(kind: str, tmp_path: Path) -> None:
    for file, text in PROJECT.items():
        (tmp_path / file).write_text(text)
    took = run(kind, 20, tmp_path)
    assert 0 < took.test < took.whole
