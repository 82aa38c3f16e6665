"""Formats the output of the subcommands: text, tables, JSON, exit statuses."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from distlock.exceptions import DistlockError, LockKeyError
from distlock.inspection.state import Lock, Snapshot
from distlock.text import clipped, printable

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


def add_options(parser: CommandParser, *, as_json: bool = True) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--using", default="default", metavar="ALIAS", help="alias in DISTLOCK")
    if as_json:
        parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument(
        "--budget",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long reading may take; what is not read by then is left out (default 10)",
    )


def seconds(text: str) -> float:
    """Return the value of an option that is a number of seconds."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be 0 or more seconds")
    return value


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


def duration(value: float | None) -> str:
    """Return a number of seconds in a few characters: ``0.4s``, ``0:00:42``, ``1 day, 2:11:00``."""
    if value is None:
        return "?"
    return f"{value:.1f}s" if value < 10 else str(timedelta(seconds=int(value)))


def table(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as lines with aligned columns; the last column keeps its length."""
    lines = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def facts(value: Snapshot | Lock) -> dict[str, Any]:
    """Return locks as `write_json` takes them, with texts as long as a page shows them."""

    def short(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: clipped(one) if isinstance(one, str) else one for name, one in items}

    return asdict(value, dict_factory=short)


def write_json(command: BaseCommand, value: Any) -> None:
    """Write one document in ASCII, with escapes, so that no key can move a terminal's cursor."""
    command.stdout.write(json.dumps(value, indent=2, cls=DjangoJSONEncoder))
