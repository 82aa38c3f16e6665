"""Formats the output of the subcommands: text, tables, JSON, a watched screen, exit statuses."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from shutil import get_terminal_size
from typing import Any, Final, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from distlock.exceptions import DistlockError, LockKeyError, LockUnavailable
from distlock.inspection.state import Contender, Lock, Snapshot
from distlock.text import clipped, printable

from .interrupts import ended_by_signals

#: Exit statuses beside 0, as in `run`: nothing found or done, wrong usage, no answer.
NOTHING: Final = 1
USAGE: Final = 2
UNAVAILABLE: Final = os.EX_UNAVAILABLE  # 69
MISCONFIGURED: Final = os.EX_CONFIG  # 78
INTERRUPTED: Final = 130

EPILOG: Final = (
    "Exit status: 0, also for an empty list; 1 when nothing was found for the key, or not all was "
    "done; 2 for wrong usage; 69 when the lock server is not available; 78 when the settings are "
    "wrong; 130 after Ctrl-C."
)

#: Begin and end a screen of its own, without a cursor and with long lines cut; it leaves the
#: terminal as it was.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
#: Go to the top; clear the rest of a line; clear the rest of the screen.
_TOP, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
#: The seconds between two looks, at least.
_PAUSE: Final = 2.0


def add_options(parser: CommandParser, *formats: str, watch: bool = False) -> None:
    """Add the common options.

    :param formats: what ``-o`` takes
    :param watch: whether there is a ``--watch``
    """
    parser.epilog = EPILOG
    add_alias(parser)
    if formats:
        meant = {"wide": "more columns", "json": "for a script"}
        text = "; ".join(f"{one}: {meant[one]}" for one in formats)
        parser.add_argument("-o", "--output", choices=formats, help=text)
    if watch:
        parser.add_argument(
            "-w", "--watch", action="store_true", help="on a terminal: look again, until Ctrl-C"
        )
    parser.add_argument(
        "--budget",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long reading may take; what is not read by then is left out (default 10)",
    )


def add_alias(parser: CommandParser) -> None:
    """Add ``--using``."""
    parser.add_argument("--using", default="default", metavar="ALIAS", help="alias in DISTLOCK")


def seconds(text: str) -> float:
    """Return the value of an option that is a number of seconds."""
    with suppress(ValueError):
        if 0 <= (value := float(text)) < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 up")


@contextmanager
def exit_statuses() -> Iterator[None]:
    """Turn errors into messages and exit statuses."""
    try:
        yield
    except KeyboardInterrupt:
        raise CommandError("Interrupted.", returncode=INTERRUPTED) from None
    except LockKeyError as error:
        raise CommandError(str(error), returncode=USAGE) from None
    except ImproperlyConfigured as error:
        raise CommandError(str(error), returncode=MISCONFIGURED) from None
    except DistlockError as error:
        raise CommandError(str(error), returncode=UNAVAILABLE) from error


#: Lines for the output, and notes beside it.
Shown: TypeAlias = tuple[list[str], list[str]]


def watch(command: BaseCommand, look: Callable[[], Shown], *, again: bool) -> None:
    """Write what a look returns; on a terminal, if wanted, again and again until Ctrl-C.

    A lock server that is away does not end that.

    :param look: may raise LockUnavailable
    """
    out = command.stdout
    if not (again and out.isatty()):
        lines, notes = look()
        for line in lines:
            out.write(line)
        for note in notes:
            command.stderr.write(note)
        return
    with suppress(KeyboardInterrupt), ended_by_signals():
        try:
            out.write(_ENTER, ending="")
            while True:
                started = time.monotonic()
                try:
                    lines, notes = look()
                except LockUnavailable as error:
                    lines, notes = [], [command.style.ERROR(printable(str(error)))]
                height = get_terminal_size().lines - 1 - len(notes)
                shown = "".join(f"{one}{_END_OF_LINE}\n" for one in [*lines[:height], *notes])
                out.write(f"{_TOP}{shown}{_END_OF_SCREEN}", ending="")
                out.flush()
                # A large tree is not read without a break.
                time.sleep(max(_PAUSE, 4 * (time.monotonic() - started)))
        finally:
            out.write(_LEAVE, ending="")
            out.flush()


def duration(value: float | None) -> str:
    """Return a number of seconds in a few characters: ``0.4s``, ``42s``, ``3m05s``, ``1d02h``."""
    if value is None:
        return "?"
    if value < 10:
        return f"{value:.1f}s"
    minutes, secs = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{secs:02}s" if minutes else f"{secs}s"


def lasted(one: Contender) -> str:
    """Return how long a contender has waited, or held: ``<1.2s`` if no more is known."""
    if not one.holds or one.seconds is None:
        return duration(one.seconds)
    if one.held is not None:
        return duration(one.held)
    return "new" if one.is_new else f"<{duration(one.seconds)}"


def table(rows: Iterable[Sequence[object]]) -> list[str]:
    """Return rows as lines with aligned columns; the last column keeps its length."""
    lines = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def facts(value: Snapshot | Lock) -> dict[str, Any]:
    """Return locks as `write_json` takes them, with texts as long as a page shows them."""

    def short(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: clipped(one) if isinstance(one, str) else one for name, one in items}

    return asdict(value, dict_factory=short)


def as_json(value: Any) -> str:
    """Return a document in ASCII, with escapes, so that no key can move a terminal's cursor."""
    return json.dumps(value, indent=2, cls=DjangoJSONEncoder)
