"""The export as Jepsen's EDN: it parses, and says what the history says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from distlock_chaos.analysis import edn
from tests.faults.tools import Story

_TOKEN = re.compile(r'\s*(?:(?P<mark>[{}])|(?P<text>"(?:[^"\\]|\\.)*")|(?P<atom>[^\s{},"]+)),?')


def parse(line: str) -> dict[str, Any]:
    """Read one map of EDN; keywords and symbols are texts."""
    tokens = list(_TOKEN.finditer(line))
    assert "".join(token.group() for token in tokens).strip() == line.strip()
    value, rest = _value(tokens)
    assert rest == []
    assert isinstance(value, dict)
    return value


def _value(tokens: list[re.Match[str]]) -> tuple[Any, list[re.Match[str]]]:
    first, rest = tokens[0], tokens[1:]
    if text := first["text"]:
        return json.loads(text), rest
    if atom := first["atom"]:
        named = {"nil": None, "true": True, "false": False}
        return named[atom] if atom in named else int(atom) if atom.isdigit() else atom, rest
    assert first["mark"] == "{"
    found = {}
    while rest[0]["mark"] != "}":
        key, rest = _value(rest)
        found[key], rest = _value(rest)
    return found, rest[1:]


def operations(story: Story) -> list[tuple[Any, ...]]:
    """Process, type and function of each operation."""
    parsed = [parse(line) for line in edn.lines(story.timeline().events)]
    assert [one[":index"] for one in parsed] == list(range(len(parsed)))
    assert [one[":time"] for one in parsed] == sorted(one[":time"] for one in parsed)
    return [(one[":process"], one[":type"], one[":f"]) for one in parsed]


def test_a_hold_is_an_acquire_and_a_release(story: Story) -> None:
    story.hold(1, "a", 10)
    story.release(2, "a")
    assert operations(story) == [
        (0, ":invoke", ":acquire"),
        (0, ":ok", ":acquire"),
        (0, ":invoke", ":release"),
        (0, ":ok", ":release"),
    ]


def test_the_value_has_key_mode_and_token(story: Story) -> None:
    story.hold(1, "a", 10, mode="read")
    asked, got = (parse(line) for line in edn.lines(story.timeline().events))
    assert asked[":value"] == {":key": "key", ":mode": ":read"}
    assert got[":value"] == {":key": "key", ":mode": ":read", ":token": 10}
    assert got[":time"] == 1_000_000_000


def test_a_busy_acquire_fails(story: Story) -> None:
    story.ask(1, "a")
    story.end(2, "a", "busy")
    assert operations(story) == [(0, ":invoke", ":acquire"), (0, ":fail", ":acquire")]


def test_nobody_knows_when_a_lost_hold_ends_and_its_thread_goes_on_as_another(
    story: Story,
) -> None:
    story.hold(1, "a", 10)
    story.lose(2, "a")
    story.release(2.5, "a")
    story.hold(3, "b", 11)
    assert operations(story)[2:] == [
        (0, ":invoke", ":release"),
        (0, ":info", ":release"),
        (1, ":invoke", ":acquire"),
        (1, ":ok", ":acquire"),
    ]


def test_a_killed_process_may_have_the_lock_or_not(story: Story) -> None:
    story.ask(1, "a")
    story.add(2, "killed", pid=1)
    assert operations(story) == [(0, ":invoke", ":acquire"), (0, ":info", ":acquire")]


def test_faults_are_the_nemesis(story: Story) -> None:
    story.fault(1, "leader pause", until=3)
    lines = [parse(line) for line in edn.lines(story.timeline().events)]
    assert [one[":f"] for one in lines] == [":start", ":stop"]
    assert {one[":process"] for one in lines} == {":nemesis"}
    assert lines[0][":value"] == {":fault": "leader pause", ":pid": 1, ":key": "key"}


def test_texts_are_quoted(story: Story) -> None:
    story.add(1, "fault", kind='a "b"\\', lasts=1, pid=1, key=None)
    (line,) = edn.lines(story.timeline().events)
    assert parse(line)[":value"] == {":fault": 'a "b"\\', ":pid": 1, ":key": None}


def test_a_file_has_one_operation_a_line(story: Story, tmp_path: Path) -> None:
    story.hold(1, "a", 10)
    edn.write(tmp_path / "history.edn", story.events)
    assert (tmp_path / "history.edn").read_text().splitlines() == list(edn.lines(story.events))
