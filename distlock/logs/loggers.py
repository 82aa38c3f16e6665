"""Loggers whose lines nobody can forge: paths, keys, labels and nodes are written by others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from distlock.keys.znodes import printable

if TYPE_CHECKING:
    from collections.abc import Callable

#: How many characters of one argument a line has: an error names several nodes.
_LONGEST: Final = 2000


class _Shown(str):
    """The text of an argument, also with ``%r``."""

    __slots__ = ("with_r",)
    with_r: str

    def __repr__(self) -> str:
        return self.with_r


def _shown(value: object) -> _Shown:
    shown = _Shown(printable(str(value), _LONGEST))
    shown.with_r = printable(repr(value), _LONGEST)
    return shown


class _Printable(logging.Filter):
    """Make all that a record fills in printable: a newline in a path would begin a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                arg if isinstance(arg, int | float) else _shown(arg) for arg in record.args
            )
        return True


_printable = _Printable()


def safe(logger: logging.Logger, *filters: Callable[[logging.LogRecord], bool]) -> logging.Logger:
    """Return `logger`, whose records have printable arguments from now on.

    A logger's filter is not asked for the records of its children, so each logger needs it.

    :param filters: of this logger; they see the arguments before these become text
    """
    for one in filters:
        logger.addFilter(one)
    logger.addFilter(_printable)
    return logger
