"""What a type checker says that has no plugin of django-stubs, as pyright never has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
from typing_extensions import assert_type

from distlock import FencedModel, Hold

class Stock(FencedModel):
    pass

def fenced(hold: Hold) -> None:
    assert_type(Stock.objects.get(pk=1), Stock)
    assert_type(Stock.objects.fenced(hold).claim(pk=1), Stock)
    assert_type(Stock.objects.filter(pk=1).fenced(hold).update(quantity=1), int)
    Stock.objects.fenced(None)  # type: ignore[arg-type]
"""


@pytest.mark.deep
def test_a_fenced_model_has_its_query_set() -> None:
    command = ["-m", "mypy", "--config-file=", "--strict", "--disable-error-code=import-untyped"]
    run = subprocess.run(
        [sys.executable, *command, "-c", CODE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "Success: no issues found in 1 source file\n")
