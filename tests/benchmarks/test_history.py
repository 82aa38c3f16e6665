"""The measurement of the history's cost."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.kit.helpers import ROOT


def test_it_prints_the_ratio_of_each_kind() -> None:
    command = [sys.executable, "-m", "benchmarks.history", "--rounds=1", "--cycles=20"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    found = re.findall(r"^(\w+) +[\d.]+ µs .*, ([\d.]+) times$", done.stdout, re.MULTILINE)
    assert [kind for kind, _ in found] == ["off", "on", "all"] * 2
    assert found[0][1] == found[3][1] == "1.00"
    assert "cannot be written" not in done.stderr
