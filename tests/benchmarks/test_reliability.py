"""`benchmarks.reliability`: one fault for real, with distlock only, and how figures become cells.

The comparison itself takes minutes and is a command: ``make reliability``.
"""

from __future__ import annotations

import sys

import pytest

from benchmarks import faults, reliability
from benchmarks.arena import Arena
from distlock_chaos.install import ServerNotInstalled, java, zookeeper_jars


def test_a_broken_lock_is_lost_to_its_holder_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        java(), zookeeper_jars()
    except ServerNotInstalled as error:
        pytest.skip(str(error))
    monkeypatch.setattr(faults, "WATCHED", 0.5)
    command = [sys.executable, "-m", "benchmarks.contenders.python", "distlock"]
    with Arena("distlock", command) as arena:
        finding = faults.broken(arena, held_for=1)
    assert finding[faults.LEFT] == "0"
    assert faults.TOLD + "lock_lost" in finding
    assert finding[faults.CAME + "release()"] == "LockLost"
    for measured in (faults.RECOVERY, faults.SAYS, faults.OVERLAP):
        assert isinstance(finding[measured], float), measured


def test_a_cell_is_the_median_and_what_was_no_number_and_in_how_many_runs() -> None:
    runs: list[faults.Finding] = [{"x": 3.0}, {"x": 1.0}, {"x": "never"}, {"x": 1.5}, {}]
    assert reliability.cell(runs, "x") == "1.50 s / never (4 of 5 runs)"


def test_a_library_that_cannot_be_had_is_not_run() -> None:
    text = reliability.tables({"killed": {"Curator": [], "distlock": [{"recovery": 4.0}]}})
    assert "| Curator | not run |" in text
    assert "| distlock | 4.00 s |" in text
