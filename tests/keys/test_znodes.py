"""Curator's node names: parsed and put in order, over the wrap of the sequence as well.

A new prefix for each attempt, foreign children, kazoo's own locks, and the wrap at 2³¹.
"""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.keys.znodes import LOCK, in_line, incompatible_recipe, parse, protected_prefix

LAST, FIRST = 2**31 - 1, -(2**31)


def as_the_server_writes(number: int) -> str:
    """The counter is a signed 32-bit integer, formatted with Java's ``%010d``."""
    return f"{(number - FIRST) % 2**32 + FIRST:010d}"


def lock_node(number: int) -> str:
    return f"{protected_prefix()}{LOCK}{as_the_server_writes(number)}"


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0000000000"),
        (LAST, "2147483647"),
        (LAST + 1, "-2147483648"),
        (-1, "-000000001"),
        (-123_456_789, "-123456789"),
    ],
)
def test_the_number_of_a_node_is_read_as_the_server_writes_it(number: int, written: str) -> None:
    assert as_the_server_writes(number) == written
    node = parse(lock_node(number))
    assert node is not None
    assert as_the_server_writes(node.sequence) == written


@given(st.integers(FIRST, LAST))
def test_every_number_of_the_counter_is_read(number: int) -> None:
    node = parse(lock_node(number))
    assert node is not None
    assert (node.kind, node.sequence) == (LOCK, number)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-lock-0000000007", "lock-"),
        ("lock-0000000007", "lock-"),
        ("_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-__READ__0000000007", "__READ__"),
        ("_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-__WRIT__0000000007", "__WRIT__"),
    ],
)
def test_curators_contenders_are_known(name: str, kind: str) -> None:
    node = parse(name)
    assert node is not None
    assert (node.name, node.kind, node.sequence) == (name, kind, 7)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "lock-",
        "lock-7",
        "lock-00000000070",
        "lock-0000000007x",
        "lock-0000000007\n",
        "lock--1",
        "lock-+000000001",
        "lock-" + "\N{ARABIC-INDIC DIGIT SEVEN}" * 10,
        "lease-0000000007",
        "config",
        "0000000007",
        "9b0ca9d264ee__lock__0000000007",
        "9b0ca9d264ee__rlock__0000000007",
    ],
)
def test_other_children_are_no_contenders(name: str) -> None:
    assert parse(name) is None


def test_a_long_line_is_parsed_once() -> None:
    """All who wait in it list it, again and again."""
    names = [lock_node(number) for number in range(20_000)]
    for name in names:
        parse(name)
    before = parse.cache_info().misses
    for name in names:
        parse(name)
    assert parse.cache_info().misses == before


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("9b0ca9d264ee4ff08a4bb0e0a4f0e4b7__lock__0000000007", "kazoo's own Lock"),
        ("9b0ca9d264ee4ff08a4bb0e0a4f0e4b7__rlock__0000000007", "kazoo's own Lock"),
        ("9b0ca9d264ee4ff08a4bb0e0a4f0e4b7__lock__-2147483648", "kazoo's own Lock"),
        ("_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-latch-0000000007", "Curator's LeaderLatch"),
        ("_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-lock-0000000007", ""),
        ("__lock__", ""),
        ("latch-", ""),
        ("locks", ""),
    ],
)
def test_incompatible_recipes_are_known(name: str, answer: str) -> None:
    assert incompatible_recipe(name) == answer


@given(
    start=st.integers(FIRST, LAST)
    | st.integers(LAST - 50, LAST)
    | st.integers(-50, 50)
    | st.integers(FIRST, FIRST + 50),
    steps=st.lists(st.integers(1, 100), max_size=30),
    seed=st.randoms(use_true_random=False),
)
def test_the_order_of_arrival_survives_the_wrap(
    start: int, steps: list[int], seed: random.Random
) -> None:
    """Sorted as plain numbers or texts, two contenders would hold."""
    number = start
    names = [lock_node(number)]
    for step in steps:
        number += step
        names.append(lock_node(number))
    shuffled = list(names)
    seed.shuffle(shuffled)
    assert [node.name for node in in_line(shuffled)] == names


def test_each_attempt_has_a_prefix_of_its_own() -> None:
    """CURATOR-190, and what finds the node again after a lost reply."""
    prefixes = {protected_prefix() for _ in range(100)}
    assert len(prefixes) == 100
    assert all(re.fullmatch(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-", p) for p in prefixes)
