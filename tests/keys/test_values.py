"""A value has the same text in every process and run, or it is refused.

Two processes that write different keys for one thing do not exclude each other; one that writes the
same key for everything serialises the whole shop.
"""

from __future__ import annotations

import enum
import io
import json
import re
from collections import OrderedDict, defaultdict, deque, namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from django.http import HttpRequest, QueryDict
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from distlock import (
    LockKeyError,
    zk_lock,
)
from distlock.keys.templates import KeyTemplate
from tests.kit.helpers import eventually, spawn_python
from tests.kit.tools import PATIENCE

HOUR = timezone(timedelta(hours=1))
Point = namedtuple("Point", "x y")  # noqa: PYI024 - as people write it


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Material(str, enum.Enum):
    WOOD = "wood"


class Sku:
    """An object whose author has given it a text."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __str__(self) -> str:
        return self.code


@dataclass
class Tagged:
    """Its text is that of its fields, which may be a set."""

    tags: set[str]


def key(value: Any) -> str:
    return KeyTemplate("stock:<sku>").fill({"sku": value})


STABLE = [
    ("42", "42"),
    (42, "42"),
    (True, "True"),
    (1.5, "1.5"),
    (Decimal("1.50"), "1.50"),
    (Fraction(1, 3), "1/3"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (date(2026, 1, 2), "2026-01-02"),
    (time(3, 4), "03:04:00"),
    (timedelta(hours=1), "1:00:00"),
    (datetime(2026, 1, 2, 3, 4), "2026-01-02 03:04:00"),  # noqa: DTZ001 - without a zone
    (datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc), "2026-01-02 03:04:00+00:00"),
    (datetime(2026, 1, 2, 4, 4, tzinfo=HOUR), "2026-01-02 03:04:00+00:00"),
    (Colour.RED, "Colour.RED"),
    (Size.BIG, "3"),
    (Material.WOOD, "wood"),
    ([Size.BIG, Material.WOOD], "[3, 'wood']"),
    (PurePosixPath("a/b"), "a/b"),
    (ip_address("127.0.0.1"), "127.0.0.1"),
    (Sku("a1"), "a1"),
    (SimpleLazyObject(lambda: Sku("a1")), "a1"),
    ([1, "b", None, 1.5], "[1, 'b', None, 1.5]"),
    ((1, 2), "[1, 2]"),
    (Point(1, 2), "[1, 2]"),
    ([date(2026, 1, 2)], "['2026-01-02']"),
    ({"b": 1, "a": [2]}, "{'a': [2], 'b': 1}"),
    ({2: "b", 1: {}}, "{1: {}, 2: 'b'}"),
    (OrderedDict(b=1, a=2), "{'a': 2, 'b': 1}"),
    (defaultdict(int, b=1, a=2), "{'a': 2, 'b': 1}"),
    (QueryDict("b=1&a=2&a=3"), "{'a': ['2', '3'], 'b': ['1']}"),
    (SimpleLazyObject(lambda: {"b": 1, "a": 2}), "{'a': 2, 'b': 1}"),
]


@pytest.mark.parametrize(("value", "text"), STABLE, ids=lambda value: type(value).__name__)
def test_a_value_has_one_text(value: Any, text: str) -> None:
    assert key(value) == f"stock:{text}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x": {"a": 1, "b": 2}}, {"x": {"b": 2, "a": 1}}),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        ((1, [2, (3,)]), json.loads(json.dumps((1, [2, (3,)])))),
        (
            datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
            datetime(2026, 1, 2, 4, tzinfo=HOUR),
        ),
    ],
)
def test_equal_values_have_one_key(one: Any, other: Any) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a, b"], ["a", "b"]),
        (["a', 'b"], ["a", "b"]),
        ([1], ["1"]),
        ([None], ["None"]),
        ([[]], [{}]),
        ({"a": "1, 'b': 2"}, {"a": "1", "b": 2}),
        ([Sku("a', 'b")], ["a", "b"]),
    ],
)
def test_different_values_have_two_keys(one: Any, other: Any) -> None:
    assert key(one) != key(other)


class Shop:
    def order(self) -> None: ...


REFUSED = [
    ({"a"}, "set, whose order"),
    (frozenset("a"), "frozenset, whose order"),
    ({"a": 1}.keys(), "dict_keys, whose order"),
    ([{"a"}], "set, whose order"),
    ({"x": frozenset("a")}, "frozenset, whose order"),
    (SimpleLazyObject(lambda: {"a"}), "set, whose order"),
    (Tagged({"a"}), "Tagged, whose text"),
    ([Tagged({"a"})], "Tagged, whose text"),
    (object(), "object, whose text"),
    ([object()], "object, whose text"),
    (Shop(), "Shop, whose text"),
    (SimpleLazyObject(Shop), "Shop, whose text"),
    ((n for n in "a"), "generator, whose text"),
    (iter("a"), "str_ascii_iterator|str_iterator, whose text"),
    (map(str, "a"), "map, whose text"),
    (range(2), "range, whose text"),
    (deque("a"), "deque, whose text"),
    (re.compile("a"), "Pattern, whose text"),
    (io.StringIO("a"), "StringIO, whose text"),
    (HttpRequest(), "HttpRequest, whose text"),
    (re, "module, whose text"),
    (ValueError(object()), "an address in memory"),
    (len, "names nothing"),
    (Shop, "names nothing"),
    (Shop().order, "names nothing"),
    (lambda: "a", "names nothing"),
    (partial(len, "a"), "names nothing"),
    (None, "names nothing"),
    (SimpleLazyObject(lambda: None), "names nothing"),
    (float("nan"), "names nothing"),
    (float("inf"), "names nothing"),
    ([float("-inf")], "names nothing"),
    (Decimal("NaN"), "names nothing"),
    (Decimal("sNaN"), "names nothing"),
    (Decimal("Infinity"), "names nothing"),
    (b"a", "bytes.*Decode"),
    (bytearray(b"a"), "bytearray.*Decode"),
    (memoryview(b"a"), "memoryview.*Decode"),
    ([b"a"], "bytes.*Decode"),
    (gettext_lazy("Monday"), "active language"),
    ("", "would share one lock"),
    (" \t\u2003", "would share one lock"),
    (Sku(""), "would share one lock"),
    ([], "would share one lock"),
    ((), "would share one lock"),
    ({}, "would share one lock"),
    (QueryDict(), "would share one lock"),
]


@pytest.mark.parametrize(
    ("value", "why"), REFUSED, ids=[f"{w}-{n}" for n, (_, w) in enumerate(REFUSED)]
)
def test_a_value_without_one_text_is_refused(value: Any, why: str) -> None:
    with pytest.raises(LockKeyError, match=rf"<sku> in the lock key 'stock:<sku>' is .*({why})"):
        key(value)


def test_the_message_names_an_attribute_to_use() -> None:
    with pytest.raises(LockKeyError, match=r"<sku\.id>.*__str__\(\)"):
        key(Shop())


_TEXTS = """
import json
from tests.keys import test_values as tests

texts = {}
for number, value in enumerate(
    [value for value, _ in tests.STABLE + tests.REFUSED] + [{w: {w} for w in "abcdefgh"}]
):
    try:
        texts[number] = tests.key(value)
    except tests.LockKeyError:
        texts[number] = None
print(json.dumps(texts))
"""


def test_two_processes_with_other_hashes_write_the_same_keys() -> None:
    texts = []
    for seed in ("1", "2"):
        with spawn_python(_TEXTS, environment={"PYTHONHASHSEED": seed}) as process:
            output, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
            texts.append(json.loads(output))
    assert texts[0] == texts[1]
    assert list(texts[0].values())[: len(STABLE)] == [f"stock:{text}" for _, text in STABLE]


# --- enums that are texts ------------------------------------------------------------------------
# They are the keys that they equal. From Python 3.11 on, a ``class Key(str, Enum)`` formats as
# ``Key.STOCK``, and its hash is never that of its value.


class Key(str, Enum):
    STOCK = "stock:42"


def is_free(lock: Any) -> bool:
    """Whether another thread can take the lock, which it releases."""

    def take() -> bool:
        taken: bool = lock.acquire(timeout=0)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as other:
        return other.submit(take).result(PATIENCE)


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize(("held", "wanted"), [(Key.STOCK, "stock:42"), ("stock:42", Key.STOCK)])
def test_it_excludes_the_text_that_it_equals(held: str, wanted: str) -> None:
    holder, rival = zk_lock(held), zk_lock(wanted)
    assert holder.acquire()
    assert not is_free(rival)
    holder.release()
    eventually(lambda: is_free(rival), PATIENCE)


@pytest.mark.usefixtures("distlock_settings")
def test_a_hold_names_the_key_as_plain_text() -> None:
    with zk_lock(Key.STOCK) as hold:
        assert type(hold.key) is str
        assert f"{hold.key}" == "stock:42"
