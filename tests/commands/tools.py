"""Tools of the tests of commands that look at locks."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.core.management import CommandError, call_command

from tests.kit.tools import PATIENCE


def run(*arguments: str, errors: StringIO | None = None) -> tuple[int, str, str]:
    """Run a subcommand; return its exit status and what it has written."""
    out, errors = StringIO(), errors or StringIO()
    status = 0
    try:
        subcommand, *rest = arguments
        patient = [] if subcommand in ("history", "limit", "sweep") else ["--budget", f"{PATIENCE}"]
        call_command("distlock", subcommand, *patient, *rest, stdout=out, stderr=errors)
    except CommandError as error:
        status = error.returncode
        errors.write(f"{error}\n")
    return status, out.getvalue(), errors.getvalue()


def run_json(*arguments: str) -> Any:
    """Run a subcommand that succeeds, and return the document that it writes."""
    status, out, errors = run(*arguments, "-o", "json")
    assert (status, errors) == (0, "")
    assert out.isascii()
    return json.loads(out)
