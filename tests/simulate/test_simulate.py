"""Many schedules harm nobody; with any one safety measure missing, some schedule does.

For longer runs there is ``python -m tests.simulate --minutes M``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.simulate.mutations import MANY, MUTATIONS, SOUGHT, Mutation, find
from tests.simulate.schedule import OF_REDIS, run, shrink


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_no_schedule_harms(first: int) -> None:
    for seed in range(first, first + 20):
        result = run(seed)
        assert not result.violation, f"python -m tests.simulate --seed {seed}: {shrink(result)}"


def test_a_seed_replays_everything() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run(7, trace=trace)
    assert len(traces[0]) > 50
    assert traces[0] == traces[1]


def test_a_seed_replays_everything_in_another_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "tests.simulate", "--seed", "11"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.deep
@pytest.mark.parametrize("first", range(10_000, 12_000, 400))
def test_more_schedules_harm_nobody(first: int) -> None:
    """Without those on Redis: one of them had two holders, but only after 900 others had run."""
    for seed in range(first, first + 400):
        if (seed + 1) % OF_REDIS == 0:
            continue
        result = run(seed)
        assert not result.violation, f"python -m tests.simulate --seed {seed}: {shrink(result)}"


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(one, marks=pytest.mark.deep if one.seeds == MANY else (), id=one.what)
        for one in MUTATIONS
        if one.seeds != SOUGHT
    ],
)
def test_without_a_safety_measure_a_schedule_harms(mutation: Mutation) -> None:
    found = find(mutation)
    assert found is not None
    assert re.search(mutation.harm, found.violation)
    assert not run(found.seed).violation
