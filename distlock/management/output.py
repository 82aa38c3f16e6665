"""Formats the output of the subcommands: text, tables, JSON, exit statuses."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.exceptions import DistlockError, LockKeyError
from distlock.lease.nodes import LeaseHolder
from distlock.text import clipped, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from distlock.inspection.state import Contender, Lock

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
    """Add the options of all these subcommands."""
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
    """Return the value of an option that is a number of seconds above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be a number of seconds above 0")
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


# --- text ----------------------------------------------------------------------------------------


def duration(value: float | None) -> str:
    """Return a number of seconds in a few characters: ``0.4s``, ``42s``, ``3m05s``, ``2h11m``."""
    if value is None:
        return "?"
    if value < 10:
        return f"{value:.1f}s"
    whole = int(value)
    for size, big, small in ((86400, "d", 3600), (3600, "h", 60), (60, "m", 1)):
        if whole >= size:
            unit = {3600: "h", 60: "m", 1: "s"}[small]
            return f"{whole // size}{big}{whole % size // small:02d}{unit}"
    return f"{whole}s"


def table(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as lines with aligned columns; the last column keeps its length."""
    lines = [[printable(str(cell)) for cell in row] for row in rows]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


# --- JSON ----------------------------------------------------------------------------------------


def write_json(command: BaseCommand, value: Any) -> None:
    """Write one document in ASCII, with escapes, so that no key can move a terminal's cursor."""
    command.stdout.write(json.dumps(value, indent=2))


def lock_as_json(lock: Lock) -> dict[str, Any]:
    """Return the facts of a lock."""
    return {
        "key": clipped(lock.key),
        "name": clipped(lock.name),
        "kind": lock.kind,
        "path": clipped(lock.path),
        "holding": lock.holding,
        "waiting": lock.waiting,
        "limit": lock.limit,
        "age": lock.age,
        "longest_wait": lock.longest_wait,
        "readable": lock.readable,
        "foreign": list(lock.foreign),
        "holders": [contender_as_json(one) for one in lock.holders],
        "waiters": [contender_as_json(one) for one in lock.waiters],
    }


def contender_as_json(contender: Contender) -> dict[str, Any]:
    """Return the facts of a holder or waiter."""
    one = contender.participant
    expires = one.expires if isinstance(one, LeaseHolder) else None
    return {
        "node": clipped(one.path),
        "mode": contender.mode,
        "holds": contender.holds,
        "who": str(contender),
        "host": one.host,
        "pid": one.pid,
        "worker": one.worker,
        "label": one.label,
        "owner": one.owner_id,
        "session": f"0x{one.session_id:x}",
        "token": one.token,
        "since": contender.since.isoformat() if contender.since else None,
        "seconds": contender.seconds,
        "expires": expires.isoformat() if expires else None,
        "peer": one.peer,
        "revoked": one.revoked,
        "readable": contender.readable,
    }
