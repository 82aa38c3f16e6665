"""``order:<a>:<b>`` names one pair of values: who chooses a part cannot block others.

Without the encoding ("1:2", "3") and ("1", "2:3") would be one lock.
"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from distlock import LockKeyError, zk_locked
from distlock.keys.templates import KeyTemplate, znode_name


def fill(template: str, *values: str) -> str:
    return KeyTemplate(template).fill(dict(zip("abc", values, strict=False)))


@pytest.mark.parametrize(
    ("template", "values", "key"),
    [
        ("order:<a>:<b>", ("1", "2"), "order:1:2"),
        ("order:<a>:<b>", ("1:2", "3"), "order:1%3A2:3"),
        ("order:<a>:<b>", ("1", "2:3"), "order:1:2%3A3"),
        ("order:<a>:<b>", ("1%3A2", "3"), "order:1%253A2:3"),
        ("order:<a>:<b>", ("é/ü", "3"), "order:é/ü:3"),
        ("<a>/<b>-<c>", ("1/2", "3-4", "5:6"), "1%2F2/3%2D4-5:6"),
        ("order:<a>", ("1:2%",), "order:1:2%"),
        ("tenant=<a>&user=<b>", ("1&user=2", "3"), "tenant=1%26user=2&user=3"),
    ],
)
def test_a_separator_within_a_value_is_encoded(
    template: str, values: tuple[str, ...], key: str
) -> None:
    assert fill(template, *values) == key


values = st.text(min_size=1).filter(str.strip) | st.text(
    alphabet=":;%3A1a-x\u0338\u037e\u2260\u0301", min_size=1
)


@pytest.mark.parametrize(
    "template",
    ["order:<a>:<b>:<c>", "<a>;<b>;<c>", "<a>-x-<b>x:<c>", "<a>A:B<b>%:%<c>", "<a>=:<b>:=<c>"],
)
@given(st.tuples(values, values, values), st.tuples(values, values, values))
@example(("1:2", "3", "4"), ("1", "2:3", "4"))
@example(("1;2", "3", "4"), ("1\u037e2", "3", "4"))  # the Greek question mark, to NFC a semicolon
@example(("1\u037e2", "3", "4"), ("1", "2\u037e3", "4"))
@example(("a\u2260b", "c", "d"), ("a", "\u0338b\u2260c", "d"))
def test_two_calls_have_one_lock_only_if_all_values_are_equal(
    template: str, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assume(nfc(one) != nfc(other))
    assert znode_name(fill(template, *one)) != znode_name(fill(template, *other))


def nfc(texts: tuple[str, ...]) -> list[str]:
    return [unicodedata.normalize("NFC", text) for text in texts]


@pytest.mark.parametrize(
    "template", ["<a><b>", "x<a>1<b>", "<a>W<b>", "<a>%<b>", "<a>=<b>", "<a> <b>", "<a>:<b>é<c>"]
)
def test_values_that_nothing_separates_are_refused_at_decoration(template: str) -> None:
    with pytest.raises(LockKeyError, match=r"Nothing separates <.>.*'<.>:<.>'"):
        zk_locked(template)


def test_literals_around_the_values_need_no_separator() -> None:
    assert fill("W<a>:<b>W", "W", "W") == "WW:WW"
