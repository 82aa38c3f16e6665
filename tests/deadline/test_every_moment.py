"""An exception at every moment at which a signal can come leaves nothing (promise 4).

Between the lines, too, which tests/interrupts/test_every_line.py does not reach: Python runs the
handlers of signals when a function begins, when a loop turns, and when a call of something that is
written in C has returned, whose result is lost then. Left out is the head of the ``__exit__`` of a
lock, as there. From Python 3.12 on, which can tell of these moments (PEP 669).
"""

from __future__ import annotations

import dis
import itertools
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from distlock.locks.multilock import MultiLock
from distlock.locks.mutex import Mutex
from distlock.locks.semaphore import Permits
from tests.interrupts.recipes import (
    block_in_block,
    block_of,
    decorated,
    nothing_is_left,
    parents,
    read_inside_write,
    several,
    without_a_block,
)
from tests.interrupts.technique import PACKAGE, SoftLimit, SoftTimeLimit
from tests.kit.tools import Tree, await_connection

HEADS = {kind.__exit__.__code__ for kind in (Mutex, MultiLock, Permits)}


if sys.version_info >= (3, 12):
    TOOL = 4  # of the six that there may be at a time, none of the four that have a name
    EVENTS = sys.monitoring.events

    class Interruption:
        """Raises at the moment number `moment` of this thread in distlock."""

        def __init__(self, moment: int, error: type[BaseException]) -> None:
            self._left = moment
            self._error = error
            self._thread = threading.get_ident()
            #: Where it came so far.
            self.landed = ""

        def __enter__(self) -> None:
            sys.monitoring.use_tool_id(TOOL, "distlock")
            for event in (EVENTS.PY_START, EVENTS.PY_RESUME):
                sys.monitoring.register_callback(TOOL, event, self._begins)
            sys.monitoring.register_callback(TOOL, EVENTS.C_RETURN, self._has_returned)
            sys.monitoring.register_callback(TOOL, EVENTS.INSTRUCTION, self._comes_to)
            # CALL stands for what follows from it.
            sys.monitoring.set_events(
                TOOL, EVENTS.PY_START | EVENTS.PY_RESUME | EVENTS.CALL | EVENTS.INSTRUCTION
            )

        def __exit__(self, *_: object) -> None:
            sys.monitoring.set_events(TOOL, 0)
            for event in (EVENTS.PY_START, EVENTS.PY_RESUME, EVENTS.C_RETURN, EVENTS.INSTRUCTION):
                sys.monitoring.register_callback(TOOL, event, None)
            sys.monitoring.free_tool_id(TOOL)

        def _begins(self, code: CodeType, offset: int) -> None:
            if code not in HEADS:
                self._moment(code, offset)

        def _has_returned(self, code: CodeType, offset: int, *_: object) -> None:
            self._moment(code, offset)

        def _comes_to(self, code: CodeType, offset: int) -> None:
            # The event JUMP would do, but what is raised at that is not handled (CPython 152375).
            if dis.opname[code.co_code[offset]] == "JUMP_BACKWARD":
                self._moment(code, offset)

        def _moment(self, code: CodeType, offset: int) -> None:
            if (
                self.landed
                or threading.get_ident() != self._thread
                or not code.co_filename.startswith(PACKAGE)
            ):
                return
            self._left -= 1
            if self._left == 0:
                lines = (line for start, end, line in code.co_lines() if start <= offset < end)
                self.landed = f"{Path(code.co_filename).name}:{next(lines)}"
                raise self._error

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (without_a_block, SoftTimeLimit),
            (block_of("mutex"), SoftLimit),
            (block_in_block, SoftLimit),
            (decorated, SoftTimeLimit),
            (read_inside_write, SoftLimit),
            (several, SoftLimit),
        ],
    )
    def test_an_exception_at_any_moment_leaves_nothing(
        tree: Tree, call: Callable[[], Any], error: type[BaseException]
    ) -> None:
        parents(tree)
        await_connection()
        for moment in itertools.count(1):
            interruption = Interruption(moment, error)
            with suppress(error), interruption:
                call()
            if not interruption.landed:
                break
            try:
                nothing_is_left(tree)
            except AssertionError as failure:
                raise AssertionError(
                    f"interrupted at {interruption.landed}: {failure}"
                ) from failure
        assert moment > 200
