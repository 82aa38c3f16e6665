"""Numbers as a line that fits its box, whatever the numbers are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.admin.sparkline import HEIGHT, MARGIN, WIDTH, sparkline


def pairs(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


@given(st.lists(st.floats(), max_size=80))
def test_every_value_has_its_point_within_the_box(values: list[float]) -> None:
    line = sparkline(values)
    points = pairs(line.points)
    assert len(points) == max(len(values), 2)
    for x, y in points + pairs(line.area):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert line.highest >= line.last >= 0


@given(st.lists(st.floats(0, 1e300), min_size=2, max_size=80))
def test_what_is_more_is_higher_and_the_highest_is_at_the_top(values: list[float]) -> None:
    line = sparkline(values)
    points = pairs(line.points)
    ranked = sorted(zip(values, points, strict=True), key=lambda one: one[0])
    heights = [y for _, (_, y) in ranked]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == (MARGIN if max(values) else HEIGHT - MARGIN)
    assert (line.highest, line.last) == (max(values), values[-1])


@pytest.mark.parametrize("values", [[], [0], [math.nan], [-1, -math.inf]], ids=range(4))
def test_nothing_is_a_level_line(values: list[float]) -> None:
    line = sparkline(values)
    assert {y for _, y in pairs(line.points)} == {HEIGHT - MARGIN}
    assert line.highest == line.last == 0
