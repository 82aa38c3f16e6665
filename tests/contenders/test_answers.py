"""The server's answers become events of the wait queue, errors too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from distlock.contenders import contender
from distlock.queue import events as e

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-lock-0000000042"
STAT = SimpleNamespace(czxid=7, ephemeralOwner=99, version=3, aversion=0)
ERROR = OSError("no")


@pytest.mark.parametrize(
    ("event", "value", "expected"),
    [
        (contender.listed, [NAME], e.Listed([NAME])),
        (contender._node_read, (b"data", STAT), e.NodeRead(NAME, e.Node(NAME, 7, 99, 42), b"data")),
        (contender._watched, (b"data", STAT), e.Watched(NAME, b"data", 3)),
    ],
)
def test_an_answer_carries_what_was_asked_for(
    event: Callable[..., Any], value: Any, expected: Any
) -> None:
    about = [NAME] if event in (contender._node_read, contender._watched) else []
    assert event(*about, value, None) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (contender.listed, e.Listed((), ERROR)),
        (contender._line_read, e.LineRead(error=ERROR)),
        (contender._node_read, e.NodeRead(NAME, error=ERROR)),
        (contender._watched, e.Watched(NAME, error=ERROR)),
    ],
)
def test_an_error_comes_with_nothing_else(event: Callable[..., Any], expected: Any) -> None:
    about = [NAME] if event in (contender._node_read, contender._watched) else []
    assert event(*about, None, ERROR) == expected


@pytest.mark.parametrize(
    ("data", "version", "aversion", "plain"),
    [(b"", 0, 0, True), (b"somebody's", 0, 0, False), (b"", 1, 0, False), (b"", 0, 1, False)],
)
def test_a_line_is_plain_until_somebody_writes_to_it(
    data: bytes, version: int, aversion: int, plain: bool
) -> None:
    stat = SimpleNamespace(czxid=7, version=version, aversion=aversion)
    assert contender._line_read((data, stat), None) == e.LineRead(7, version, plain)


def test_a_node_is_known_by_its_name_and_not_by_its_path() -> None:
    assert contender._node(f"/distlock/key/{NAME}", STAT) == e.Node(NAME, 7, 99, 42)
