"""Real Apache Curator on the other side: ``InterProcessReadWriteLock`` (promise 10).

Debian 12 has Curator 5.4.0, whose downgrade lets a queued writer in (CURATOR-621).
"""

from __future__ import annotations

import pytest

from benchmarks import curator
from tests.interop.tools import BOTH_WAYS, KEY, Language, NewContender
from tests.kit.tools import PATIENCE, Tree

both_ways = pytest.mark.parametrize(("holds", "waits"), BOTH_WAYS)


@pytest.mark.parametrize("later", ["Java", "Python"])
@both_ways
def test_a_queued_writer_blocks_later_readers(
    contender: NewContender, tree: Tree, holds: Language, waits: Language, later: Language
) -> None:
    reader, writer, late = contender(holds), contender(waits), contender(later)
    assert reader.acquire("read")
    writing = writer.ask("write")
    tree.await_line(KEY, 2)
    reading = late.ask("read")
    tree.await_line(KEY, 3)
    assert not contender(later).acquire("read", timeout=0)
    assert not reading.done()
    reader.release("read")
    assert writing.result(PATIENCE)
    assert not reading.done()
    writer.release("write")
    assert reading.result(PATIENCE)
    late.release("read")


@both_ways
def test_a_downgraded_writer_lets_no_writer_in(
    contender: NewContender, tree: Tree, holds: Language, waits: Language, newer: bool
) -> None:
    """The writer in line goes on waiting, and so do those behind it.

    In Java since Curator 5.5 (CURATOR-621). Before, Curator's read node stands behind the writer in
    line, who is then in beside the reader; nobody but Curator could prevent that.
    """
    holder, writer, behind = contender(holds), contender(waits), contender(waits)
    assert holder.acquire("write")
    writing = writer.ask("write")
    tree.await_line(KEY, 2)
    reading = behind.ask("read")
    tree.await_line(KEY, 3)
    assert holder.acquire("read")
    tree.await_line(KEY, 4)
    holder.release("write")
    tree.await_line(KEY, 3)
    mended = [int(part) for part in curator.version(newer=newer).split(".")] >= [5, 5]
    if holds == "Python" or mended:
        assert not contender(waits).acquire("write", timeout=0)
        assert not writing.done()
        assert not reading.done()
    else:
        assert writing.result(PATIENCE)
    holder.release("read")
    assert writing.result(PATIENCE)
    assert not reading.done()
    writer.release("write")
    assert reading.result(PATIENCE)
    behind.release("read")


@both_ways
def test_after_a_downgrade_a_reader_of_the_other_language_shares(
    contender: NewContender, tree: Tree, holds: Language, waits: Language
) -> None:
    holder, reader = contender(holds), contender(waits)
    assert holder.acquire("write")
    reading = reader.ask("read")
    tree.await_line(KEY, 2)
    assert holder.acquire("read")
    assert not reading.done()
    holder.release("write")
    assert reading.result(PATIENCE)
    assert not contender(waits).acquire("write", timeout=0)
    holder.release("read")
    reader.release("read")


def test_readers_and_writers_of_both_languages_are_granted_in_the_order_of_arrival(
    contender: NewContender, tree: Tree
) -> None:
    line: list[tuple[Language, str]] = [
        ("Java", "write"),
        ("Python", "read"),
        ("Java", "read"),
        ("Python", "write"),
        ("Java", "write"),
        ("Python", "read"),
    ]
    contenders = [contender(language) for language, _ in line]
    granted = []
    for number, (one, (_, recipe)) in enumerate(zip(contenders, line, strict=True), start=1):
        granted.append(one.ask(recipe))
        tree.await_line(KEY, number)
    for turn in ([0], [1, 2], [3], [4], [5]):
        assert all(granted[place].result(PATIENCE) for place in turn)
        assert not any(later.done() for later in granted[turn[-1] + 1 :])
        for place in turn:
            contenders[place].release(line[place][1])


def test_each_language_sees_the_readers_and_the_writers_of_both(
    contender: NewContender, tree: Tree
) -> None:
    line: list[tuple[Language, str]] = [
        ("Java", "read"),
        ("Python", "read"),
        ("Java", "write"),
        ("Python", "write"),
    ]
    contenders = [contender(language) for language, _ in line]
    granted = []
    for number, (one, (_, recipe)) in enumerate(zip(contenders, line, strict=True), start=1):
        granted.append(one.ask(recipe))
        names = tree.await_line(KEY, number)
    java, python = contenders[:2]
    assert java.participants("read") == python.participants("read") == names[:2]
    assert java.participants("write") == python.participants("write") == names[2:]
    for one, grant, (_, recipe) in zip(contenders, granted, line, strict=True):
        assert grant.result(PATIENCE)
        one.release(recipe)
