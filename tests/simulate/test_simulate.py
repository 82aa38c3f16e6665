"""Many schedules harm nobody; with any one safety measure missing, some schedule does.

They run in a process of their own: a schedule replaces the clocks and the threads of distlock's
modules, and what other tests leave running meanwhile, such as a server, would have them too.

For longer runs there is ``python -m tests.simulate --minutes M``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import django
import pytest

from tests.kit import table
from tests.simulate.mutations import MANY, MUTATIONS, SOUGHT, find
from tests.simulate.schedule import Result, run, shrink

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def simulator() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, get_context("spawn"), _begin) as process:
        process.submit(os.getpid).result()  # it starts now, not in a test
        yield process


def _begin() -> None:
    django.setup()
    table.hold_machines()


def _violation(seeds: range) -> str:
    """Return the first, with the faults that it needs."""
    for seed in seeds:
        result = run(seed)
        if result.violation or table.faults:
            return f"python -m tests.simulate --seed {seed}: {table.faults} {shrink(result)}"
    return ""


def _traces(seed: int) -> list[list[str]]:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run(seed, trace=trace)
    return traces


def _found(what: str) -> tuple[Result | None, str]:
    """Return what a mutation harms, and what the same schedule does without it."""
    found = find(next(one for one in MUTATIONS if one.what == what))
    return found, run(found.seed).violation if found else ""


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_no_schedule_harms(simulator: ProcessPoolExecutor, first: int) -> None:
    assert simulator.submit(_violation, range(first, first + 20)).result() == ""


def test_a_seed_replays_everything(simulator: ProcessPoolExecutor) -> None:
    first, second = simulator.submit(_traces, 7).result()
    assert len(first) > 50
    assert first == second


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
def test_more_schedules_harm_nobody(simulator: ProcessPoolExecutor, first: int) -> None:
    assert simulator.submit(_violation, range(first, first + 400)).result() == ""


@pytest.mark.parametrize(
    ("what", "harm"),
    [
        pytest.param(
            one.what,
            one.harm,
            marks=pytest.mark.deep if one.seeds == MANY else (),
            id=one.what,
        )
        for one in MUTATIONS
        if one.seeds != SOUGHT
    ],
)
def test_without_a_safety_measure_a_schedule_harms(
    simulator: ProcessPoolExecutor, what: str, harm: str
) -> None:
    found, without = simulator.submit(_found, what).result()
    assert found is not None
    assert re.search(harm, found.violation)
    assert without == ""
