"""Explains what a PostgreSQL server refuses, and what to do about it."""

from __future__ import annotations

import re
import time
from typing import Any, Final

import psycopg
from psycopg import pq

from distlock.engine import kazoo
from distlock.engine.errors import NotYet


class PostgresRefused(Exception):
    """The server refuses what it is asked; the message says what to do."""


class JustStarted(PostgresRefused, NotYet):
    """The server has recovered from a crash, or taken over, and grants no lock yet."""


#: ``tree.sql`` raises these.
_OVER: Final = "DL001"
_GRACE: Final = "DL002"
STANDBY: Final = (
    "is a standby, or read-only: it has no locks. Name the primary in DATABASES, or give several "
    'hosts with target_session_attrs "read-write"'
)
_NO_TABLES: Final = (
    "has no tables for locks in its search_path, or those of another version. "
    "Run `manage.py migrate`"
)
#: Advice, by the SQLSTATE.
_ADVICE: Final = {
    "25006": STANDBY,
    "42883": _NO_TABLES,
    "42P01": _NO_TABLES,
    "42501": "does not let this user do what locks need. Give the user of DATABASES the rights "
    "that `migrate` had, or run that as this user",
    "53300": "has no connection left (max_connections): each process with locks takes one more",
}
#: The same, by the text: psycopg tells no SQLSTATE of a connection that could not be made.
_REFUSALS: Final = (
    (
        "authentication failed|not permitted to log in|pg_hba.conf",
        "refuses the user or the password of DATABASES",
    ),
    ("too many (clients|connections)|connection slots|no more connections", _ADVICE["53300"]),
)


def error_of(result: Any, where: str) -> Exception:
    """Return the error for a result that is one; ConnectionDropped if the next will do better."""
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
    if state == _GRACE:
        seconds = int(text) / 1000
        refused = JustStarted(
            f"{where} has just recovered from a crash, or taken the place of another server, and "
            f"its locks have ended. It grants none for {seconds:.1f} s more; by then their "
            "holders know that they are lost. Try again, or wait longer with timeout=."
        )
        refused.until = time.monotonic() + seconds
        return refused
    if state in _ADVICE:
        return PostgresRefused(f"{where} {_ADVICE[state]} ({text}).")
    # It was rolled back: a deadlock, no lock in time, cancelled. Over another connection, whoever
    # has asked asks again.
    error: Exception = kazoo.ConnectionDropped("The session is over." if state == _OVER else text)
    return error


def refusal(error: BaseException, where: str) -> PostgresRefused | None:
    """Return the error for one of psycopg's, or None where trying again may help."""
    if isinstance(error, PostgresRefused):
        return error
    if isinstance(error, psycopg.Error):
        state = error.sqlstate or ""
        if state in _ADVICE:
            return PostgresRefused(f"{where} {_ADVICE[state]} ({str(error).splitlines()[0]}).")
        for words, advice in _REFUSALS:
            if re.search(words, str(error)):
                return PostgresRefused(f"{where} {advice} ({str(error).splitlines()[0]}).")
    return None
