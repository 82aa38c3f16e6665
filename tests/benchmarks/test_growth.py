"""`benchmarks.growth`: the formulas, how figures are shown, and small measurements for real.

The ones of a thousand waiters take minutes and are a command: ``make growth``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.growth import measure, page
from benchmarks.growth.measure import Keys, Line, Sessions
from benchmarks.growth.model import CONTENDED, HEADROOM, Costs, Fleet
from benchmarks.growth.page import Growth
from distlock_chaos.install import ServerNotInstalled, java, zookeeper_jars

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep

COSTS = Costs(session=5000, lock=2000, writes=4000)


# --- the model -----------------------------------------------------------------------------------


def test_a_longer_session_timeout_divides_the_signs_of_life() -> None:
    short = Fleet(processes=100, busy=40, acquires=0, session_timeout=10)
    long = Fleet(processes=100, busy=40, acquires=0, session_timeout=30)
    assert short.signs_of_life == pytest.approx(40 * 0.6 + 60 * 0.3)
    assert long.signs_of_life == pytest.approx(short.signs_of_life / 3)


def test_a_lock_takes_two_writes_and_a_wait_two_requests_more() -> None:
    alone = Fleet(processes=0, busy=0, acquires=100)
    waiting = Fleet(processes=0, busy=0, acquires=100, contended=0.5)
    assert (alone.writes, alone.requests) == (200, 300)
    assert (waiting.writes, waiting.requests) == (200, 400)


def test_memory_is_that_of_sessions_and_of_the_locks_in_use() -> None:
    fleet = Fleet(processes=10_000, busy=500, acquires=0)
    assert fleet.memory(COSTS) == 10_000 * 5000 + 500 * 2000
    assert fleet.watches == 500


@pytest.mark.parametrize(("acquires", "ensembles"), [(0, 1), (1000, 1), (1001, 2), (5000, 5)])
def test_an_ensemble_gets_half_of_the_writes_that_it_can_do(acquires: int, ensembles: int) -> None:
    assert HEADROOM == 0.5
    assert Fleet(processes=1, busy=1, acquires=acquires).ensembles(COSTS) == ensembles


# --- what is shown -------------------------------------------------------------------------------


def growth() -> Growth:
    return Growth(
        writes=4000,
        lines=[Line(waiters=1000, milliseconds=2.5, requests=5.02)],
        keys=[
            Keys(1, 3.0, 1.0, nodes=3, watches=1, memory=90_000, left=0, cleared=0.1),
            Keys(1000, 1.5, 0.2, nodes=2001, watches=1000, memory=2000, left=0, cleared=0.5),
        ],
        sessions=[Sessions(100, 8.0, memory=5000, idle=30.1, holding=60.2, watches=100)],
    )


def test_measured_and_expected_stand_side_by_side() -> None:
    text = page.text(growth())
    assert f"| 1,000 | 2.50 | 5.0 | {CONTENDED} |" in text
    assert "| 1,000 | 1.50 | 0.20 | 2,001 | 2,001 | 1,000 | 2.0 kB | 0 | 0.5 s |" in text
    assert "| 100 | 8.00 | 5.0 kB | 30.1 | 30.0 | 60.2 | 60.0 | 100 |" in text


def test_the_memory_of_a_single_lock_cannot_be_told_from_the_servers_own() -> None:
    assert "| 1 | 3.00 | 1.00 | 3 | 3 | 1 | - | 0 | 0.1 s |" in page.text(growth())
    assert growth().costs == COSTS


def test_without_enough_of_them_no_fleet_is_reckoned() -> None:
    few = growth()
    few.sessions = []
    assert few.costs is None
    assert "fleets" not in page.text(few)


# --- for real ------------------------------------------------------------------------------------


@pytest.fixture
def _zookeeper_is_installed() -> None:
    try:
        java(), zookeeper_jars()
    except ServerNotInstalled as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("_zookeeper_is_installed")
def test_one_after_another_gets_its_turn(tmp_path: Path) -> None:
    found = measure.line(waiters=4, seconds=1, folder=tmp_path)
    assert found.milliseconds > 0
    assert 2 <= found.requests <= 7


@pytest.mark.usefixtures("_zookeeper_is_installed")
def test_keys_leave_nothing_behind(tmp_path: Path) -> None:
    found = measure.keys(20, folder=tmp_path)
    assert found.nodes == 2 * 20 + 1
    assert found.watches == 20
    assert found.left == 0


@pytest.mark.usefixtures("_zookeeper_is_installed")
def test_sessions_give_signs_of_life(tmp_path: Path) -> None:
    # Longer than a third of the session timeout, after which an idle one says something.
    found = measure.sessions(5, seconds=3.5, folder=tmp_path)
    assert found.idle > 0
    assert found.holding > 0
    assert found.watches == 5
