"""The drawing of who waits for whom: complete, bounded, legible, the same each time, and text."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from django.template.loader import render_to_string
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from distlock.admin.drawing import MAX_NODES, draw
from distlock.admin.layout import NODE_WIDTH
from distlock.inspection.state import Contender, Lock
from distlock.inspection.wait_graph import Cycle, Link, cycles, links
from distlock.keys.znodes import Participant
from tests.testproject.templates import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_django import Settings

    from distlock.admin.drawing import Drawing
    from distlock.inspection.state import Kind

NAMES = "abcdefgh"


def contender(owner: str, path: str, token: int, holds: bool, label: str) -> Contender:
    who = Participant(
        path=path,
        sequence=token,
        token=token,
        session_id=1,
        host=f"host-of-{owner}",
        pid=1,
        worker="MainThread",
        owner_id=owner,
        label=label,
    )
    return Contender(participant=who, mode="lock", holds=holds)


def lock(
    key: str,
    holders: Sequence[str],
    waiters: Sequence[str],
    *,
    kind: Kind = "mutex",
    label: str = "",
) -> Lock:
    line = [*holders, *waiters]
    stand = [
        contender(owner, f"/{key}/{place}", place, place < len(holders), label)
        for place, owner in enumerate(line)
    ]
    return Lock(
        key=key,
        name=key,
        path=f"/{key}",
        kind=kind,
        holding=len(holders),
        waiting=len(waiters),
        holders=tuple(stand[: len(holders)]),
        waiters=tuple(stand[len(holders) :]),
    )


def ring(*owners: str) -> list[Lock]:
    """Each waits for the next, and the last for the first."""
    pairs = zip(owners, [*owners[1:], owners[0]], strict=True)
    return [lock(f"of {holder}", [holder], [waiter]) for waiter, holder in pairs]


def star(count: int, key: str = "star") -> Lock:
    return lock(key, [f"{key} holder"], [f"{key} {number:05}" for number in range(count)])


def owners_of(locks: Iterable[Lock]) -> set[str]:
    return {one.owner for lock in locks for one in lock.contenders}


def drawn(locks: Sequence[Lock], name: str | None = None) -> Drawing:
    return draw(links(locks, owners_of(locks)), cycles(locks), lock=name)


def told(drawing: Drawing) -> set[tuple[str, str, str]]:
    return {
        (edge.waiter.owner, key, edge.holder.owner) for edge in drawing.edges for key in edge.locks
    }


some = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)
locks_of_some = st.lists(st.tuples(some, some), max_size=8).map(
    lambda held: [
        lock(str(number), holders, waiters, kind="read/write")
        for number, (holders, waiters) in enumerate(held)
    ]
)


# --- what is drawn -------------------------------------------------------------------------------


@given(locks_of_some)
def test_every_link_is_drawn_with_its_lock(locks: list[Lock]) -> None:
    drawing = drawn(locks)
    found = links(locks, owners_of(locks))
    assert told(drawing) == {
        (link.waiter.owner, link.lock.key, link.holder.owner) for link in found
    }
    assert {node.owner for node in drawing.nodes} == owners_of(locks)
    assert drawing.hidden == 0
    assert bool(drawing) == bool(found)


@given(locks_of_some, st.randoms(use_true_random=False))
def test_it_is_the_same_for_the_same_links_in_any_order(
    locks: list[Lock], dice: random.Random
) -> None:
    found, circles = links(locks, owners_of(locks)), cycles(locks)
    expected = draw(found, circles)
    dice.shuffle(found)
    dice.shuffle(circles)
    turned = [Cycle(links=(*cycle.links[1:], cycle.links[0])) for cycle in circles]
    assert draw(found, turned) == expected


@given(locks_of_some)
def test_the_arrows_of_a_deadlock_are_marked_and_no_others(locks: list[Lock]) -> None:
    drawing = drawn(locks)
    expected = {
        (link.waiter.owner, link.holder.owner) for cycle in cycles(locks) for link in cycle.links
    }
    marked = {(edge.waiter.owner, edge.holder.owner) for edge in drawing.edges if edge.stuck}
    assert marked == expected
    assert {node.owner for node in drawing.nodes if node.stuck} == {one for one, _ in expected}
    assert drawing.stuck == bool(expected)


def test_where_nobody_waits_there_is_no_drawing() -> None:
    assert not draw([], [])
    assert not drawn([lock("free", ["a"], [])])


def test_several_locks_between_two_share_an_arrow() -> None:
    drawing = drawn([lock("1", ["a"], ["b"]), lock("2", ["a"], ["b"])])
    (edge,) = drawing.edges
    assert (edge.locks, edge.title, edge.label) == (("1", "2"), "1, 2", "1, 2")


def test_one_who_waits_for_many_holders_of_a_lock_says_its_name_once() -> None:
    drawing = drawn([lock("rw", ["a", "b", "c"], ["w"], kind="read/write")])
    assert Counter(edge.label for edge in drawing.edges) == {"rw": 1, "": 2}
    assert {edge.title for edge in drawing.edges} == {"rw"}


def test_one_lock_is_drawn_with_all_that_hangs_together_with_it() -> None:
    locks = [*ring("a", "b"), lock("tail", ["a"], ["t"]), star(3)]
    assert {node.owner for node in drawn(locks, "tail").nodes} == {"a", "b", "t"}
    assert {node.owner for node in drawn(locks, "star").nodes} == owners_of([star(3)])
    assert not drawn(locks, "another")


# --- bounds --------------------------------------------------------------------------------------


def test_of_many_the_deadlocks_are_shown_and_it_is_said_how_many_are_not() -> None:
    locks = [star(1_000), *ring("x", "y", "z")]
    drawing = drawn(locks)
    shown = {node.owner for node in drawing.nodes}
    assert len(shown) == MAX_NODES
    assert shown > {"x", "y", "z"}
    assert drawing.hidden == 1_004 - MAX_NODES
    assert all({edge.waiter.owner, edge.holder.owner} <= shown for edge in drawing.edges)


def test_of_many_those_next_to_the_lock_are_shown() -> None:
    # A chain of stars; what is asked for is in the middle.
    stars = [star(30, f"star {number}") for number in range(5)]
    chain = [
        lock(f"chain {number}", [f"star {number} holder"], [f"star {number + 1} holder"])
        for number in range(4)
    ]
    drawing = drawn([*stars, *chain], "star 2")
    shown = {node.owner for node in drawing.nodes}
    assert len(shown) == MAX_NODES
    assert shown > owners_of([stars[2]])
    assert drawing.hidden == 5 * 31 - MAX_NODES


@pytest.mark.parametrize("count", [MAX_NODES, MAX_NODES + 1, 1_000])
def test_a_deadlock_of_very_many_is_cut_too(count: int) -> None:
    drawing = drawn(ring(*(f"{number:04}" for number in range(count))))
    assert len(drawing.nodes) == MAX_NODES
    assert drawing.hidden == count - MAX_NODES
    assert drawing.stuck


# --- where it is ---------------------------------------------------------------------------------


@given(locks_of_some)
def test_no_two_boxes_overlap_and_all_are_within_the_frame(locks: list[Lock]) -> None:
    assert_legible(drawn(locks))


@pytest.mark.parametrize("count", range(1, MAX_NODES + 1))
def test_circles_of_every_size_are_legible(count: int) -> None:
    assert_legible(drawn(ring(*(f"{number:02}" for number in range(count)))))


def assert_legible(drawing: Drawing) -> None:
    for one, other in combinations(drawing.nodes, 2):
        assert abs(one.x - other.x) >= one.width or abs(one.y - other.y) >= one.height, (one, other)
    left, top, width, height = map(int, drawing.box.split())
    assert (width, height) == (drawing.width, drawing.height)
    for node in drawing.nodes:
        assert left <= node.left <= node.left + node.width <= left + width
        assert top <= node.top <= node.top + node.height <= top + height
    for edge in drawing.edges:
        assert left <= edge.x <= left + width
        assert top <= edge.y <= top + height
        numbers = [int(number) for number in re.findall(r"-?\d+", edge.d)]
        for x, y in zip(numbers[::2], numbers[1::2], strict=True):
            assert left <= x <= left + width
            assert top <= y <= top + height


def test_whoever_waits_is_to_the_left_and_a_queue_is_in_its_order() -> None:
    drawing = drawn([star(30), lock("next", ["root"], ["star holder"])])
    places = {node.owner: node for node in drawing.nodes}
    queue = [places[f"star {number:05}"] for number in range(30)]
    assert [node.y for node in queue] == sorted(node.y for node in queue)
    assert {node.x for node in queue} == {queue[0].x}
    assert queue[0].x < places["star holder"].x < places["root"].x


def test_a_circle_goes_round_clockwise() -> None:
    nodes = {node.owner: node for node in drawn(ring("a", "b", "c")).nodes}
    a, b, c = (nodes[name] for name in "abc")
    assert a.y < b.y == c.y
    assert c.x < a.x < b.x


def test_an_arrow_ends_at_its_boxes() -> None:
    (edge,) = drawn([lock("1", ["a"], ["b"])]).edges
    x1, y1, *_, x2, y2 = map(int, re.findall(r"-?\d+", edge.d))
    assert (x1, y1) == (edge.waiter.left + NODE_WIDTH, edge.waiter.y)
    assert (x2, y2) == (edge.holder.left, edge.holder.y)


# --- what it says --------------------------------------------------------------------------------


@pytest.fixture
def _templates(settings: Settings) -> None:
    settings.TEMPLATES = TEMPLATES


def page(drawing: Drawing) -> str:
    return render_to_string("distlock/waitgraph.html", {"drawing": drawing})


def svg(text: str) -> ET.Element:
    found = re.search(r"<svg.*</svg>", text, re.DOTALL)
    assert found
    return ET.fromstring(found[0])  # noqa: S314 - our own


@pytest.mark.usefixtures("_templates")
def test_it_says_the_same_in_words() -> None:
    text = page(drawn(ring("a", "b")))
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", text.partition("<details>")[2]))
    assert (
        "host-of-a:1 MainThread waits for of b, held by host-of-b:1 MainThread. Part of a deadlock."
    ) in words
    assert words.count("Part of a deadlock.") == 2
    assert "Thick dashed arrows mark a deadlock" in text
    assert text.count("stroke-dasharray") == 2


@pytest.mark.usefixtures("_templates")
def test_without_a_deadlock_none_is_spoken_of() -> None:
    text = page(drawn([lock("1", ["a"], ["b"])]))
    assert "deadlock" not in text
    assert "stroke-dasharray" not in text


@pytest.mark.usefixtures("_templates")
def test_it_says_that_it_is_cut_short() -> None:
    assert "cut short: 1 more owner is not shown" in page(drawn([star(MAX_NODES)]))
    assert "cut short: 5 more owners are not shown" in page(drawn([star(MAX_NODES + 4)]))
    assert "cut short" not in page(drawn([star(3)]))


HOSTILE = "</title><script>alert('x')</script>\"&\N{RIGHT-TO-LEFT OVERRIDE}"


@pytest.mark.usefixtures("_templates")
def test_what_the_tree_says_is_text() -> None:
    text = page(drawn([lock(HOSTILE, [f"a{HOSTILE}"], [f"b{HOSTILE}"], label=HOSTILE)]))
    assert "<script" not in text
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    assert "style=" not in text
    assert not svg(text).findall(".//script")


@pytest.mark.usefixtures("_templates")
@pytest.mark.parametrize("long", ["x" * 200, "\N{CJK UNIFIED IDEOGRAPH-9501}" * 200], ids="ac")
def test_what_is_long_is_cut_and_whole_in_the_title(long: str) -> None:
    drawing = drawn([lock(long, ["a"], ["b"], label=long)])
    room = 25 if long[0] == "x" else 13
    assert all(len(node.label) <= room for node in drawing.nodes)
    (edge,) = drawing.edges
    assert len(edge.label) < 20
    titles = [title.text or "" for title in svg(page(drawing)).iter() if title.tag == "title"]
    assert long in titles
    assert sum(f"({long})" in title for title in titles) == 2


def test_a_cut_text_keeps_both_ends() -> None:
    (edge,) = drawn([lock("stock:of-a-very-long-name:42", ["a"], ["b"])]).edges
    assert edge.label == "stock:of-\N{HORIZONTAL ELLIPSIS}g-name:42"


def test_of_a_label_and_a_place_both_are_shown() -> None:
    node = drawn([lock("1", ["a"], ["b"], label="GET /buy/42")]).nodes[0]
    assert (node.label, node.place) == ("GET /buy/42", "host-of-a:1 MainThread")
    node = drawn([lock("1", ["a"], ["b"])]).nodes[0]
    assert (node.label, node.place) == ("host-of-a:1 MainThread", "")


def test_an_owner_says_what_it_does_where_it_waits() -> None:
    held, awaited = lock("1", ["a"], ["b"], label="then"), lock("2", ["c"], ["a"], label="now")
    nodes = {node.owner: node for node in drawn([held, awaited]).nodes}
    assert nodes["a"].label == "now"


def test_of_one_who_does_not_say_where_it_runs_the_id_is_shown() -> None:
    whole = lock("1", ["a"], ["b"])
    (link,) = links([whole], {"a", "b"})
    ids = [Participant(path=f"/{n}", sequence=1, token=1, session_id=1, owner_id=n) for n in "ba"]
    waiter, holder = (Contender(participant=one, mode="lock", holds=False) for one in ids)
    drawing = draw([Link(lock=link.lock, waiter=waiter, holder=holder)])
    assert {node.label for node in drawing.nodes} == {"a", "b"}


@pytest.mark.usefixtures("_templates")
def test_numbers_are_written_as_svg_wants_them_in_every_language(settings: Settings) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    drawing = drawn([star(30), lock("next", ["root"], ["star holder"])])
    with translation.override("de"):
        root = svg(page(drawing))
    assert (root.get("viewBox"), root.get("height")) == (drawing.box, str(drawing.height))
    assert drawing.height > 1_000
    boxes = [one for one in root.iter() if one.tag == "rect"]
    assert [one.get("y") for one in boxes] == [str(node.top) for node in drawing.nodes]


@pytest.mark.usefixtures("_templates")
def test_every_arrow_head_is_defined() -> None:
    root = svg(page(drawn([*ring("a", "b"), lock("1", ["a"], ["c"])])))
    ids = {f"url(#{one.get('id')})" for one in root.iter() if one.get("id")}
    heads = [one.get("marker-end") for one in root.iter() if one.get("marker-end")]
    assert len(heads) == 3
    assert set(heads) <= ids
