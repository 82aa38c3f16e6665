"""A key becomes one safe znode name, whatever a user typed; and the same text the same name.

Bad input (slashes, "..", control characters, lone surrogates, NFC and NFD, very long keys), at last
on a real server.
"""

from __future__ import annotations

import re
import time
import unicodedata
from typing import Any

import pytest
from django.utils.safestring import mark_safe
from hypothesis import assume, example, given
from hypothesis import strategies as st

from distlock import LockKeyError, zk_lock
from distlock.keys.templates import MAX_NAME, key_of, znode_name
from distlock.owner.owner import label
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import raw_client

#: What UTF-8 can say: all but lone surrogates.
texts = st.text(min_size=1)
#: Short alphabets meet each other's escapes far more often than all of Unicode does.
tricky_texts = st.text(alphabet="a%2Ff-.~é\u0301K\u212a/", min_size=1, max_size=400)


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


@given(texts | tricky_texts)
@example("zookeeper")
@example(".")
@example("..")
@example("a" * (MAX_NAME + 1))
@example("é" * MAX_NAME)
@example("\n")
@example("42\n")
def test_a_name_is_one_short_path_component_of_harmless_letters(key: str) -> None:
    name = znode_name(key)
    assert re.fullmatch(r"[A-Za-z0-9_.:%-]+", name)
    assert name not in {".", "..", "zookeeper"}
    assert len(name) <= MAX_NAME


@given(texts | tricky_texts)
def test_the_key_can_be_read_from_a_name_that_was_not_cut(key: str) -> None:
    found = key_of(znode_name(key))
    assert found in {None, nfc(key)}


@given(st.text(min_size=1, max_size=MAX_NAME // 12))  # an escaped code point has 12 characters
def test_a_short_key_is_never_cut(key: str) -> None:
    assume(len(nfc(key)) <= MAX_NAME // 12)
    assert key_of(znode_name(key)) == nfc(key)


@given(texts | tricky_texts, texts | tricky_texts)
@example("a%2Fb", "a/b")
@example(".", "%2E")
@example("zookeeper", "%7Aookeeper")
@example("~", "%7E")
@example("a" * 300, "a" * 301)
@example("é" * 300, "é" * 299 + "e")
def test_two_keys_have_two_names(one: str, other: str) -> None:
    assume(nfc(one) != nfc(other))
    assert znode_name(one) != znode_name(other)


@given(texts)
@example("Ångström")
@example("\u212bngstrom")
def test_composed_and_decomposed_spellings_are_one_lock(key: str) -> None:
    assert znode_name(unicodedata.normalize("NFD", key)) == znode_name(nfc(key))


def test_a_cut_name_cannot_be_had_by_a_key_that_looks_like_one() -> None:
    cut = znode_name("x" * 1000)
    assert znode_name(cut) != cut


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("stock:42", "stock:42"),
        ("a/b", "a%2Fb"),
        ("/", "%2F"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ("zookeeper", "%7Aookeeper"),
        ("zookeepers", "zookeepers"),
        ("\0", "%00"),
        ("\x1b[2J", "%1B%5B2J"),
        ("100%", "100%25"),
        ("%2F", "%252F"),
        ("a b", "a%20b"),
        ("~", "%7E"),
        ("🦊", "%F0%9F%A6%8A"),
        ("é", "%C3%A9"),
        ("e\u0301", "%C3%A9"),
    ],
)
def test_names_on_the_wire_stay_as_they_are(key: str, name: str) -> None:
    """Two releases that differ here would not exclude each other."""
    assert znode_name(key) == name


def test_a_digest_on_the_wire_stays_as_it_is() -> None:
    digest = "a92efd82109373e58f9a2056dee01e807e216ce6075f7051207c0a9f7d666e50"
    assert znode_name("a" * 201) == f"{'a' * 120}%-{digest}"


def test_text_that_django_marked_as_safe_is_text() -> None:
    assert znode_name(mark_safe("a/b")) == "a%2Fb"


@pytest.mark.parametrize("key", [None, "", 42, b"stock", ["stock"], object()])
def test_what_is_no_text_is_no_key(key: Any) -> None:
    with pytest.raises(LockKeyError, match=r"string|must not be empty"):
        zk_lock(key)


@pytest.mark.parametrize("key", ["\ud800", "stock:\udfff", "a" * 10_000 + "\udc80"])
def test_a_lone_surrogate_is_refused_and_the_message_can_be_printed(key: str) -> None:
    with pytest.raises(LockKeyError, match="not valid Unicode") as refused:
        zk_lock(key)
    assert len(str(refused.value).encode()) < 300


@pytest.mark.parametrize("length", [10_000, 2_000_000])
@pytest.mark.parametrize("letter", ["x", "é", "/", "🦊"])
def test_a_very_long_key_is_cut_quickly(letter: str, length: int) -> None:
    started = time.thread_time()
    name = znode_name(letter * length)
    assert time.thread_time() - started < 5  # a fifth of a second on an idle machine
    assert len(name) <= MAX_NAME
    assert key_of(name) is None


def test_a_long_run_of_combining_marks_does_not_freeze_the_process() -> None:
    """Normalising is quadratic in the length of such a run, and keeps the GIL."""
    started = time.thread_time()
    try:
        name = znode_name("a" + "\u0301\u0316" * 50_000)
    except LockKeyError:
        name = ""
    assert time.thread_time() - started < 1
    assert len(name) <= MAX_NAME


# --- on a real server ----------------------------------------------------------------------------
# They lock, or are refused before they reach it. A lone surrogate would kill kazoo's connection
# thread, a key of two megabytes would make the connection flap, a slash would plant a node that
# jams another lock.


BAD_KEYS = {
    "slash": "/",
    "absolute": "/distlock/stock",
    "dot": ".",
    "parent": "..",
    "way out": "../../zookeeper",
    "NUL": "a\0b",
    "controls": "\x01\x1f\x7f\x9f\r\n",
    "reserved": "zookeeper",
    "NFD": "e\u0301",
    "10,000 characters": "x" * 10_000,
    "2,000,000 characters": "é" * 2_000_000,
    "emoji": "🦊👩\u200d🚀",
    "percent signs": "%2F%%",
    "private use": "\ue000\uffff\ufffe",
    "right to left": "\u202etxt",
    "a node of ours": "_c_0-lock-0000000000",
    "markup": "<<script>>alert(1)</script>",
}


@pytest.mark.usefixtures("distlock_settings")
def test_a_strange_key_never_leaves_the_namespace(zookeeper: ZooKeeper, namespace: str) -> None:
    with raw_client(zookeeper.hosts) as client:
        before = client.exists("/zookeeper")
        for key in BAD_KEYS.values():
            with zk_lock(key) as hold:
                assert hold.path.startswith(f"{namespace}/")
                assert hold.path.count("/") == namespace.count("/") + 2
                assert client.exists(hold.path)
        assert client.exists("/zookeeper") == before


@pytest.mark.usefixtures("distlock_settings")
def test_a_lone_surrogate_is_refused_in_the_callers_thread_and_the_session_works_on() -> None:
    with zk_lock("before") as hold:
        before = session_for().id
        with pytest.raises(LockKeyError, match="surrogates not allowed"):
            zk_lock("stock:\ud800")
        hold.verify()
    with zk_lock("after") as hold:
        hold.verify()
    assert session_for().id == before


@pytest.mark.usefixtures("distlock_settings")
def test_a_label_with_a_lone_surrogate_does_no_harm() -> None:
    with label("GET /\udcff"), zk_lock("labelled") as hold:
        hold.verify()
        holder = zk_lock("labelled").holder()
        assert holder is not None
        str(holder).encode()
