"""An exception at every single step of a call (promise 4).

A soft time limit, Ctrl-C or a cancellation may land anywhere (CURATOR-45, -79, -205). Here one
lands before each line of distlock that a call runs, one line a time, until the call gets through.
Random moments, with real signals, are in tests/mutex/test_leaks.py.

Left out is what no signal can do, though tracing can: to raise before a ``try:``, an instruction
that does nothing, and before the call of ``__exit__`` when a ``with`` block is left, for which
tracing stops at the first line of the block once more. Nor, from Python 3.12 on, the turn of a loop
within one line: what tracing raises there passes by every handler of its frame (CPython 152375),
what a signal raises does not. And one thing that a signal can do: an exception at the head of
a lock's ``__exit__``, above its ``try``, comes before anything that an ``__exit__`` written in
Python could do (CPython 74174).
"""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import distlock
from tests.interrupts.recipes import EXITS

PACKAGE = str(Path(distlock.__file__).parent)
#: Comprehensions have no frame of their own any more (PEP 709), and turn in that of a ``try``.
TURNS_ARE_OUT_OF_REACH = sys.version_info >= (3, 12)


def first_line_of_body(exit_: CodeType) -> int:
    """The number of the line after the first ``try:``, or of the first line without one."""
    lines = sorted({line for *_, line in exit_.co_lines() if line})
    for number in lines:
        if linecache.getline(exit_.co_filename, number).strip() == "try:":
            return number + 1
    return lines[1]


BODIES = {exit_: first_line_of_body(exit_) for exit_ in EXITS}


class SoftLimit(BaseException):
    """What lands: such as SystemExit, which no `except Exception` may swallow."""


class SoftTimeLimit(Exception):
    """What lands: as Celery's, which an `except Exception` does catch."""


def out_of_reach(frame: FrameType) -> bool:
    """Whether no signal can raise before this step, or nothing can be done about it."""
    code, number = frame.f_code, frame.f_lineno
    statement = linecache.getline(code.co_filename, number).strip()
    if statement.startswith(("with ", "async with ")):
        return frame.f_lasti > min(start for start, _, line in code.co_lines() if line == number)
    return statement == "try:" or number < BODIES.get(code, 0)


class AtLine:
    """Calls something before the line number `step` that this thread runs in distlock.

    :param files: counts lines of the files below these folders
    """

    def __init__(
        self, step: int, act: Callable[[], None], files: tuple[str, ...] = (PACKAGE,)
    ) -> None:
        self._left = step
        self._act = act
        self._files = files
        #: Where it was called.
        self.landed = ""

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return (
            partial(self._line, [0]) if frame.f_code.co_filename.startswith(self._files) else None
        )

    def _line(self, last: list[int], frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            turns = last == [frame.f_lineno]
            last[:] = [frame.f_lineno]
            if self._counts(frame, turns):
                self._left -= 1
                if self._left == 0:
                    self.landed = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                    sys.settrace(None)
                    self._act()
        return frame.f_trace

    def _counts(self, frame: FrameType, turns: bool) -> bool:
        """Return whether a line counts; `turns` if it is the one before, once more."""
        return True


class Interruption(AtLine):
    """Raises before the line number `step` that a signal could interrupt."""

    def __init__(
        self, step: int, error: type[BaseException], files: tuple[str, ...] = (PACKAGE,)
    ) -> None:
        def act() -> None:
            raise error

        super().__init__(step, act, files)

    def _counts(self, frame: FrameType, turns: bool) -> bool:
        return not (turns and TURNS_ARE_OUT_OF_REACH) and not out_of_reach(frame)


def _apart(call: Callable[[], None]) -> Iterator[None]:
    """Call it in a generator, which has exceptions being handled of its own.

    What tracing raises before the last line of an ``except`` passes by the instruction that ends
    its exception, which would be handled for ever, in this thread. No signal can raise there.
    """
    call()
    yield


def interrupt_everywhere(
    call: Callable[[], None],
    error: type[BaseException],
    check: Callable[[], None],
    files: tuple[str, ...] = (PACKAGE,),
) -> set[str]:
    """Interrupt a call at each of its lines, and check after each; return their files."""
    steps: list[str] = []
    for step in itertools.count(1):
        interruption = Interruption(step, error, files)
        with suppress(error), interruption:
            next(_apart(call))
        if not interruption.landed:
            break
        steps.append(interruption.landed)
        try:
            check()
        except BaseException as failure:
            raise AssertionError(f"interrupted at {interruption.landed}: {failure!r}") from failure
    assert len(steps) > 80
    return {one.partition(":")[0] for one in steps}
