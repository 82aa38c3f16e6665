"""``"stock:<sku>"`` is filled from a call's arguments, and an empty value is never let through.

URL captures arrive in ``**kwargs``; ``stock:None`` would serialise the whole shop.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from distlock import LockKeyError, zk_locked
from distlock.keys.templates import KeyTemplate, znode_name


def bind(template: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    return KeyTemplate(template).bind(inspect.signature(function), args, kwargs)


def buy(request: Any, sku: Any, amount: int = 1, *, shop: str = "main") -> None:
    """A view."""


class Basket:
    def pay(self, order: Any) -> None:
        """A method."""


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("report", "report"),
        ("<sku>", "a1"),
        ("stock:<sku>", "stock:a1"),
        ("<shop>/<sku>/<sku>", "main/a1/a1"),
        ("<amount>", "1"),
        ("100%:<sku>", "100%:a1"),
    ],
)
def test_holes_are_filled_from_arguments_and_defaults(template: str, key: str) -> None:
    assert bind(template, buy, None, "a1") == key


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((None, "a1"), {}), ((None,), {"sku": "a1"}), ((), {"request": None, "sku": "a1"})],
)
def test_an_argument_may_be_given_by_place_or_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert bind("stock:<sku>", buy, *args, **kwargs) == "stock:a1"


def test_url_captures_arrive_in_kwargs() -> None:
    def view(request: Any, **captured: Any) -> None: ...

    assert bind("stock:<sku>", view, None, sku="a1") == "stock:a1"


def test_an_argument_wins_over_its_namesake_in_kwargs() -> None:
    def deduct(sku: str, /, **more: Any) -> None: ...

    assert bind("stock:<sku>", deduct, "a1", sku="other") == "stock:a1"


def test_a_missing_attribute_is_refused_by_name() -> None:
    with pytest.raises(LockKeyError, match=r"<order\.pk>.*'pk'"):
        bind("<order.pk>", Basket.pay, Basket(), SimpleNamespace())


def test_an_unset_capture_is_refused_and_the_message_says_what_there_is() -> None:
    def view(request: Any, **captured: Any) -> None: ...

    with pytest.raises(LockKeyError, match=r"needs an argument 'sku'.*'slug', 'request'"):
        bind("stock:<sku>", view, None, slug="x")


@dataclass
class Product:
    """What the decorator sees of a model instance: ``_meta`` and a key."""

    pk: int
    _meta: object = None


def test_a_model_instance_is_refused_in_favour_of_its_key() -> None:
    with pytest.raises(LockKeyError, match=r"Use <order\.pk>"):
        bind("<order>", Basket.pay, Basket(), Product(7))
    assert bind("<order.pk>", Basket.pay, Basket(), Product(7)) == "7"


def test_arguments_that_do_not_fit_raise_what_the_call_would_raise() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'sku'"):
        bind("stock:<sku>", buy, None)


@pytest.mark.parametrize(
    "template",
    [
        "<", ">", "<>", "a<b", "a>b", "<<sku>", "<sku>>",
        "<sku", "sku>", "><", "<1>", "<a b>", "<a..b>",
        "<.a>", "<a.>", "<a.1>", "<a[0]>", "<a()>", "<a-b>", "< sku>", "<order._pk>",
        "<order.__class__>", "<order.pk.__class__>",
    ],
)  # fmt: skip
def test_a_malformed_template_is_refused_at_once(template: str) -> None:
    with pytest.raises(LockKeyError):
        KeyTemplate(template)


@pytest.mark.parametrize("template", [None, "", 42, b"stock"])
def test_a_template_is_text(template: Any) -> None:
    with pytest.raises(LockKeyError, match=r"@zk_locked\('stock:<sku>'\)"):
        KeyTemplate(template)


def accepts_all(*args: Any, **kwargs: Any) -> None:
    """Nothing can be said of its arguments beforehand."""


@pytest.mark.parametrize(
    ("template", "function", "missing"),
    [
        ("report", buy, []),
        ("<sku>:<shop>", buy, []),
        ("<sku>:<skew>:<shoop.pk>", buy, ["skew", "shoop"]),
        ("<self.pk>:<order.pk>", Basket.pay, []),
        ("<self.pk>", Basket().pay, ["self"]),
        ("<anything>", accepts_all, []),
        ("<args>", lambda *args: None, ["args"]),
    ],
)
def test_names_that_no_call_can_have_are_known_beforehand(
    template: str, function: Callable[..., Any], missing: list[str]
) -> None:
    assert KeyTemplate(template).missing_from(inspect.signature(function)) == missing


# --- separators ----------------------------------------------------------------------------------
# ``order:<a>:<b>`` names one pair of values: who chooses a part cannot block others. Without the
# encoding ("1:2", "3") and ("1", "2:3") would be one lock.


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
