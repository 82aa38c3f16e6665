"""Makes loggers whose lines nobody can forge, since others choose paths, keys and labels."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from distlock.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

#: The characters that a line shows of one argument: an error names several nodes.
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
    """Makes the arguments of a record printable: a newline in a path would begin a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                arg if isinstance(arg, int | float) else _shown(arg) for arg in record.args
            )
        return True


_printable = _Printable()


def safe(logger: logging.Logger, *filters: Callable[[logging.LogRecord], bool]) -> logging.Logger:
    """Make the arguments of a logger's records printable, and return the logger.

    A logger's filter does not see the records of its children, so each logger needs one.

    :param filters: more filters for this logger; they see the arguments before these become text
    """
    for one in filters:
        logger.addFilter(one)
    logger.addFilter(_printable)
    return logger
