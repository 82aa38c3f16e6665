"""Keeps the connection thread alive, whatever the code does that it runs."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from distlock.logs.loggers import logger


def guarded(step: Callable[..., None], *args: Any) -> None:
    """Run a step on the connection thread, which no mistake of ours may end."""
    try:
        step(*args)
    except Exception as error:  # noqa: BLE001 - is logged
        report_bug(error)


def report_bug(error: Exception) -> None:
    """Log what a step on the connection thread has raised."""
    logger.error("A step of the wait queue failed: this is a bug in distlock.", exc_info=error)


def take_all(steps: deque[Callable[[], None]]) -> None:
    """Run and remove all steps, also those that come meanwhile, each as `guarded` does."""
    while steps:
        try:
            steps.popleft()()
        except Exception as error:  # noqa: BLE001 - is logged
            report_bug(error)


def report_once(error: BaseException, reported: set[tuple[Any, ...]]) -> None:
    """Log an error that nobody has foreseen, once for each line that raises it."""
    innermost = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    kind = type(error), innermost.f_code, innermost.f_lineno
    if kind not in reported:
        reported.add(kind)
        logger.error(
            "The connection to the servers failed in an unknown way. It reconnects. The same error "
            "is not logged again.",
            exc_info=error,
        )
