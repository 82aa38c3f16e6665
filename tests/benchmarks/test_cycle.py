"""`benchmarks.cycle`: it tells the caller's functions from those of the connection thread."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from benchmarks import cycle

if TYPE_CHECKING:
    from pathlib import Path

STACKS = """\
thread (1): MainThread;<module> (benchmarks/cycle.py:1);set_up (benchmarks/calls.py:9) 7
thread (1): MainThread;repeat (benchmarks/cycle.py:5);acquire (distlock/locks/mutex.py:7) 2
thread (1): MainThread;repeat (benchmarks/cycle.py:5);_local (asgiref/local.py:3) 1
thread (2): distlock-default;zk_loop (distlock/engine/connection.py:9) 1
"""
CALLER, OTHER = "caller", "connection thread"


def test_what_comes_before_the_cycles_is_left_out() -> None:
    seen = cycle.functions(STACKS)
    assert seen == {
        (CALLER, "acquire (distlock/locks/mutex.py:7)"): 2,
        (CALLER, "_local (asgiref/local.py:3)"): 1,
        (OTHER, "zk_loop (distlock/engine/connection.py:9)"): 1,
    }
    assert cycle.by_room(seen) == {
        (CALLER, "distlock/locks"): 2,
        (CALLER, "asgiref"): 1,
        (CALLER, "all"): 3,
        (OTHER, "distlock/engine"): 1,
        (OTHER, "all"): 1,
    }


def test_the_costliest_comes_first() -> None:
    seen = Counter({(CALLER, "little"): 1, (OTHER, "least"): 0, (CALLER, "much"): 3})
    text = cycle.table("function", seen, total=4, top=2)
    assert text.splitlines()[2:] == ["| much | caller | 75.0% |", "| little | caller | 25.0% |"]


def test_without_the_profiler_it_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cycle, "SPY", tmp_path / "py-spy")
    with pytest.raises(SystemExit, match="bench"):
        cycle.main([])
