"""A key with a placeholder that nobody fills would lock the whole shop; escaped, it is text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distlock import (
    LockKeyError,
    escape_key,
    zk_leader,
    zk_lease,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.keys.templates import KeyTemplate, literal_key

FORGOTTEN = [
    "stock:<sku>", "stock:<order.pk>:x", "stock:<int:sku>", "stock:{sku}",
    "stock:{order.pk:05d}", "stock:{sku!r}", "stock:{order['pk']}", "<a>:{b}",
    "<<sku>", "<sku>>>", "{{sku}",
]  # fmt: skip


@pytest.mark.parametrize("key", FORGOTTEN)
def test_a_key_that_was_not_filled_in_is_refused_and_the_message_says_what_to_write(
    key: str,
) -> None:
    with pytest.raises(LockKeyError, match="would share one lock") as refused:
        zk_lock(key)
    assert f"{key!a} has a placeholder" in str(refused.value)
    assert "escape_key" in str(refused.value)


@pytest.mark.parametrize(
    "lock",
    [
        zk_lock,
        zk_rwlock,
        zk_semaphore_mutex,
        zk_leader,
        zk_multilock,
        lambda key: zk_semaphore(key, 5),
        lambda key: zk_lease(key, 60),
    ],
    ids=["lock", "rwlock", "semaphore mutex", "leader", "multilock", "semaphore", "lease"],
)
def test_every_kind_of_lock_refuses_it_and_takes_it_escaped(lock: Any) -> None:
    with pytest.raises(LockKeyError, match="not filled in"):
        lock("stock:<sku>")
    assert lock("stock:<<sku>>") is not None


@pytest.mark.parametrize(
    "key",
    [
        "a<b", "a>b", "a<b and c>d", "<>", "< sku>", "<1>", "</b>", "{}", "{1}", "{ sku }",
        '{"sku": 42}', "{sku", "sku}", "%(sku)s", "a->b", "<=>", "[sku]", "(sku)", "}{",
    ],
)  # fmt: skip
def test_brackets_that_are_no_placeholder_are_text(key: str) -> None:
    assert zk_lock(key).key == key


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("stock:<<sku>>", "stock:<sku>"),
        ("stock:{{sku}}", "stock:{sku}"),
        ("<<<sku>>>", "<<sku>>"),
        ("<<<sku>>", "<<sku>"),
        ("{{a}}<<b>>", "{a}<b>"),
    ],
)
def test_doubled_brackets_are_brackets(written: str, key: str) -> None:
    assert zk_lock(written).key == key


texts = st.text(min_size=1) | st.text(alphabet="<>{}ab.:!_1 ", min_size=1)


@given(texts)
@example("<<a>")
@example("{a!r}}")
def test_an_escaped_key_is_the_key(key: str) -> None:
    assert literal_key(escape_key(key)) == key


@given(texts, texts)
def test_two_spelled_keys_are_two_locks(one: str, other: str) -> None:
    """Unescaping never makes one of two."""
    try:
        keys = literal_key(one), literal_key(other)
    except LockKeyError:
        return
    assert (keys[0] == keys[1]) == (one == other)


@pytest.mark.parametrize("text", ["<" * 200_000, "{a" * 100_000, "<a" * 100_000, "{a." * 70_000])
def test_a_long_key_of_brackets_is_judged_quickly(text: str) -> None:
    """It would take minutes if the time grew with the square of the length."""
    assert literal_key(text) == text


# --- templates --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template", ["stock:{sku}", "stock:{order.pk}", "stock:{sku!r:>10}", "<shop>:{sku}"]
)
def test_a_template_in_the_wrong_brackets_is_refused_at_decoration(template: str) -> None:
    with pytest.raises(LockKeyError, match=r"would share one lock\. Write <name>"):
        zk_locked(template)


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("stock:<<sku>>", "stock:<sku>"),
        ("stock:{{sku}}:<sku>", "stock:{sku}:42"),
        ("{<sku>}:stock", "{42}:stock"),
        ("{}<sku>", "{}42"),
    ],
)
def test_a_template_takes_doubled_brackets(template: str, key: str) -> None:
    assert KeyTemplate(template).fill({"sku": 42}) == key


def test_the_text_of_a_value_is_never_a_placeholder() -> None:
    assert KeyTemplate("stock:<sku>").fill({"sku": "<sku>{sku}<<x>>"}) == "stock:<sku>{sku}<<x>>"
