"""An exception at every single step of acquire and release leaves nothing (promise 4).

A soft time limit, Ctrl-C or a cancellation may land anywhere (CURATOR-45, -79, -205). Here one
lands before each line of distlock that a call runs, one line a time, until the call gets through.
Random moments, with real signals, are in tests/mutex/test_leaks.py.

Left out is what no signal can do, though tracing can: to raise before a ``try:``, an instruction
that does nothing, and before the call of ``__exit__`` when a ``with`` block is left, for which
tracing stops at the first line of the block once more. Nor, from Python 3.12 on, the turn of a loop
within one line: what tracing raises there passes by every handler of its frame (CPython 152375),
what a signal raises does not. And one thing that a signal can do: an exception at the head of
``Mutex.__exit__``, above its ``try``, comes before anything that an ``__exit__`` written in Python
could do (CPython 74174).
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import distlock
from distlock import LockBusy, zk_lock, zk_locked
from distlock.locks.mutex import Mutex
from distlock.owner.owner import current
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, Tree, await_connection, forgets_all

KEY = "key"
PACKAGE = str(Path(distlock.__file__).parent)
#: Comprehensions have no frame of their own any more (PEP 709), and turn in that of a ``try``.
TURNS_ARE_OUT_OF_REACH = sys.version_info >= (3, 12)
EXIT = Mutex.__exit__.__code__
BODY_OF_EXIT = 1 + next(
    number
    for number in itertools.count(EXIT.co_firstlineno)
    if linecache.getline(EXIT.co_filename, number).strip() == "try:"
)

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("tree")]


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
    return statement == "try:" or (code is EXIT and number < BODY_OF_EXIT)


class Interruption:
    """Raises before the line number `step` that this thread runs in distlock."""

    def __init__(self, step: int, error: type[BaseException]) -> None:
        self._left = step
        self._error = error
        #: Whether it came so far.
        self.landed = ""

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return partial(self._line, [0]) if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, last: list[int], frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            turns = last == [frame.f_lineno]
            last[:] = [frame.f_lineno]
            if not (turns and TURNS_ARE_OUT_OF_REACH) and not out_of_reach(frame):
                self._step(frame)
        return frame.f_trace

    def _step(self, frame: FrameType) -> None:
        self._left -= 1
        if self._left == 0:
            self.landed = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            sys.settrace(None)
            raise self._error


def acquire_and_release() -> None:
    lock = zk_lock(KEY, timeout=0)
    if lock.acquire():
        try:
            lock.release()
        except BaseException:
            if lock.held:  # it never began: a release can be repeated
                lock.release()
            raise


def block() -> None:
    with suppress(LockBusy), zk_lock(KEY, timeout=0):
        pass


def reentrant_blocks() -> None:
    with suppress(LockBusy), zk_lock(KEY, timeout=0), zk_lock(KEY):
        pass


@zk_locked(KEY, timeout=0, on_busy="skip")
def locked() -> None:
    pass


def nothing_is_left(tree: Tree, line: list[str]) -> None:
    session = session_for()
    assert not current().held
    eventually(lambda: tree.line(KEY) == line, PATIENCE, "the line as it was")
    # A batch's node leaves on the connection thread.
    eventually(lambda: not beneficiaries(session), PATIENCE, "nobody who needs the deadline")
    forgets_all(session)


def interrupt_everywhere(
    tree: Tree, call: Callable[[], None], error: type[BaseException]
) -> list[str]:
    """Interrupt a call at each of its lines, and return these."""
    await_connection()
    steps: list[str] = []
    line = tree.line(KEY)
    for step in itertools.count(1):
        interruption = Interruption(step, error)
        with suppress(error), interruption:
            call()
        if not interruption.landed:
            return steps
        steps.append(interruption.landed)
        try:
            nothing_is_left(tree, line)
        except AssertionError as failure:
            raise AssertionError(f"interrupted at {interruption.landed}: {failure}") from failure
    raise AssertionError("unreachable")


@pytest.fixture
def parents(tree: Tree) -> None:
    """The parents of the lock, which the server does not remove."""
    with zk_lock(KEY):
        tree.client.create(f"{tree.path(KEY)}/keeps-the-parents", b"")
    tree.await_line(KEY, 0)


@pytest.mark.usefixtures("parents")
@pytest.mark.parametrize("error", [SoftLimit, SoftTimeLimit])
@pytest.mark.parametrize("call", [acquire_and_release, reentrant_blocks, locked])
def test_an_exception_before_any_line_of_a_call_leaves_nothing(
    tree: Tree, call: Callable[[], None], error: type[BaseException]
) -> None:
    steps = interrupt_everywhere(tree, call, error)
    assert len(steps) > 80
    assert {"mutex.py", "contender.py", "requests.py", "serving.py"} <= {
        step.partition(":")[0] for step in steps
    }


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("call", [acquire_and_release, block])
def test_an_exception_before_any_line_of_a_refused_call_leaves_nothing(
    tree: Tree, call: Callable[[], None]
) -> None:
    assert len(interrupt_everywhere(tree, call, SoftLimit)) > 80


@pytest.mark.usefixtures("parents")
def test_an_exception_before_any_line_of_an_exit_stack_leaves_nothing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the standard library has in Python can be interrupted as well."""
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", (PACKAGE, contextlib.__file__))
    steps = interrupt_everywhere(tree, locked, SoftLimit)
    assert "contextlib.py" in {step.partition(":")[0] for step in steps}
