"""The drawing of a deadlock: complete, bounded, legible, the same each time, and text."""

from __future__ import annotations

import re
from itertools import combinations
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from django.template.loader import render_to_string
from django.utils import translation
from pytest_django import Settings

from distlock.admin.drawing import MOST, WIDTH, draw
from distlock.inspection.state import Contender, Lock
from distlock.inspection.wait_graph import Cycle, Link
from distlock.keys.znodes import Participant
from tests.testproject.templates import TEMPLATES

#: The height of a box in the template.
HEIGHT = 46


def contender(owner: str, token: int, *, label: str = "", host: str = "host") -> Contender:
    who = Participant(
        path=f"/{owner}/{token}",
        sequence=token,
        token=token,
        session_id=1,
        host=host and f"{host}-of-{owner}",
        pid=1,
        worker="MainThread",
        owner_id=owner,
        label=label,
    )
    return Contender(participant=who, mode="lock", holds=False)


def ring(count: int, *, key: str = "of ", label: str = "", host: str = "host") -> Cycle:
    """Each waits for the next, and the last for the first."""
    owners = [contender(f"{at:02}", at, label=label, host=host) for at in range(count)]
    return Cycle(
        links=tuple(
            Link(
                lock=Lock(key=f"{key}{at}", name=f"{key}{at}", path=f"/{at}", kind="mutex"),
                waiter=owners[at],
                holder=owners[(at + 1) % count],
            )
            for at in range(count)
        )
    )


def drawn(cycle: Cycle) -> SimpleNamespace:
    drawing = draw(cycle)
    assert drawing is not None
    return drawing


@pytest.mark.parametrize("count", range(2, MOST + 1))
def test_every_wait_is_drawn_and_legible(count: int) -> None:
    drawing = drawn(ring(count))
    assert [(wait.label, wait.lock) for wait in drawing.waits] == [
        (f"host-of-{at:02}:1 MainThread", f"of {at}") for at in range(count)
    ]
    for one, other in combinations(drawing.waits, 2):
        assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT, (one, other)
    left = top = -drawing.half
    width = height = drawing.size
    for wait, after in zip(drawing.waits, [*drawing.waits[1:], drawing.waits[0]], strict=True):
        assert left <= wait.x - WIDTH / 2 <= wait.x + WIDTH / 2 <= left + width
        assert top <= wait.y - HEIGHT / 2 <= wait.y + HEIGHT / 2 <= top + height
        assert left <= wait.lock_x - 66 <= wait.lock_x + 66 <= left + width
        assert top <= wait.lock_y - 10 <= wait.lock_y <= top + height
        numbers = [int(number) for number in re.findall(r"-?\d+", wait.d)]
        assert [*numbers[:2], *numbers[-2:]] == [wait.x, wait.y, after.x, after.y]
        for one in drawing.waits:  # no box covers the head of an arrow
            assert abs(one.x - numbers[7]) > WIDTH / 2 or abs(one.y - numbers[8]) > HEIGHT / 2


@pytest.mark.parametrize("count", [1, MOST + 1])
def test_who_waits_for_itself_and_a_deadlock_of_very_many_are_not_drawn(count: int) -> None:
    assert draw(ring(count)) is None


# --- what it says --------------------------------------------------------------------------------


@pytest.fixture
def _templates(settings: Settings) -> None:
    settings.TEMPLATES = TEMPLATES


def svg(drawing: SimpleNamespace) -> ET.Element:
    text = render_to_string("distlock/deadlock.html", {"drawing": drawing})
    found = re.search(r"<svg.*</svg>", text, re.DOTALL)
    assert found
    return ET.fromstring(found[0])  # noqa: S314 - our own


HOSTILE = "</title><script>alert('x')</script>\"&\N{RIGHT-TO-LEFT OVERRIDE}"


@pytest.mark.usefixtures("_templates")
def test_what_the_tree_says_is_text() -> None:
    drawing = drawn(ring(2, key=HOSTILE, label=HOSTILE, host=HOSTILE))
    text = render_to_string("distlock/deadlock.html", {"drawing": drawing})
    assert "<script" not in text
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    assert "style=" not in text
    assert not svg(drawing).findall(".//script")


@pytest.mark.usefixtures("_templates")
@pytest.mark.parametrize("long", ["x" * 200, "\N{CJK UNIFIED IDEOGRAPH-9501}" * 200], ids="ac")
def test_what_is_long_is_cut_and_whole_in_the_title(long: str) -> None:
    drawing = drawn(ring(2, key=long, label=long))
    room = 26 if long[0] == "x" else 13
    assert all(len(wait.label) <= room for wait in drawing.waits)
    assert all(len(wait.lock_label) < 20 for wait in drawing.waits)
    titles = [title.text or "" for title in svg(drawing).iter() if title.tag == "title"]
    assert f"{long}0" in titles
    assert sum(f"({long})" in title for title in titles) == 2


@pytest.mark.usefixtures("_templates")
def test_numbers_are_written_as_svg_wants_them_in_every_language(settings: Settings) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    drawing = drawn(ring(MOST))
    with translation.override("de"):
        root = svg(drawing)
    assert root.get("viewBox") == f"-{drawing.half} -{drawing.half} {drawing.size} {drawing.size}"
    assert drawing.size > 1_000
