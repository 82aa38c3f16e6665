"""`benchmarks.herd`: a small herd for real, and how its figures are shown.

The one of a thousand takes a minute and is a command: ``make herd``.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from benchmarks import herd
from distlock_chaos.install import ServerNotInstalled, java, zookeeper_jars

pytestmark = pytest.mark.deep

COSTS: herd.Costs = {
    "fair": {1: herd.Cost(1, 2), 1000: herd.Cost(1, 2)},
    "unfair": {1: herd.Cost(1, 3), 1000: herd.Cost(1000, 3999)},
}


@pytest.mark.parametrize(
    ("kind", "events", "least", "most"), [("fair", 1, 2, 2), ("unfair", 4, 10, 19)]
)
def test_a_release_wakes_one_of_a_line_and_all_of_a_crowd(
    kind: str, events: int, least: int, most: int
) -> None:
    try:
        java(), zookeeper_jars()
    except ServerNotInstalled as error:
        pytest.skip(str(error))
    cost = herd.measure(kind, waiters=4, releases=3)
    assert cost.events == events
    assert least <= cost.requests <= most


def test_the_table_has_a_row_for_each_number_of_waiters() -> None:
    *_, one, thousand = herd.table(COSTS).splitlines()
    assert one == "| 1 | 1 | 1 | 2 | 3 |"
    assert thousand == "| 1,000 | 1 | 1,000 | 2 | 3,999 |"


def test_the_plot_is_an_svg_with_a_named_line_for_each_figure() -> None:
    plot = ET.fromstring(herd.plot(COSTS))  # noqa: S314 - our own
    names = [text.text for text in plot.iter("{http://www.w3.org/2000/svg}text")]
    for name in ("events, fair=True", "events, fair=False", "requests, fair=False"):
        assert name in names
    assert len(list(plot.iter("{http://www.w3.org/2000/svg}polyline"))) == 4
