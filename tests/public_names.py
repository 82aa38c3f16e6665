"""The public names, one a line, in `public_names.txt`: a change of them is seen in its review.

``python -m tests.public_names`` writes the list. It has what the API reference shows, with its
arguments; what the pages name of the chaos; the settings, the subcommands with their options, and
the pytest fixtures.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import django
from django.core.management.base import CommandParser

from distlock.conf import Configuration
from distlock.testing import fixtures
from distlock_chaos import fixtures as real
from docs.site import api

if TYPE_CHECKING:
    from collections.abc import Iterator

LIST = Path(__file__).with_suffix(".txt")
CHAOS = ("distlock_chaos.proxy.TcpProxy", "distlock_chaos.server.ZooKeeper")


def public_names() -> str:
    """Return the list as the code has it."""
    return "".join(f"{name}\n" for name in sorted(_names()))


def _names() -> Iterator[str]:
    shown_by_name = api.stubs(api.PAGE.read_text(encoding="utf-8"))
    for name, stub in {**shown_by_name, **{name: api.stub(name) for name in CHAOS}}.items():
        (shown,) = ast.parse(stub).body
        yield name + _signature(shown)
        yield from (f"{name}.{attribute}" for attribute in re.findall(r":ivar (\w+):", stub))
        for member in shown.body if isinstance(shown, ast.ClassDef) else ():
            if isinstance(member, ast.AnnAssign):
                yield f"{name}.{ast.unparse(member)}"
            elif isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}.{member.name}{_signature(member)}"
    settings = {field.name.upper() for field in fields(Configuration)} - {"ALIAS"}
    yield from (f"DISTLOCK[alias][{name!r}]" for name in settings)
    commands = import_module("distlock.management.commands.distlock")  # needs a ready Django
    for name, subcommand in commands.SUBCOMMANDS.items():
        parser = CommandParser(add_help=False)
        subcommand.add_arguments(parser)
        for action in parser._actions:
            yield f"manage.py distlock {name} {'/'.join(action.option_strings) or action.dest}"
    for name in re.findall(
        r"@pytest.fixture.*\ndef (\w+)", inspect.getsource(fixtures) + inspect.getsource(real)
    ):
        yield f"pytest fixture {name}"


def _signature(shown: ast.stmt) -> str:
    """Return the arguments of a function; "" for what is no function, and for a property."""
    if not isinstance(shown, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    returned = f" -> {ast.unparse(shown.returns)}" if shown.returns else ""
    if any(ast.unparse(decorator) == "property" for decorator in shown.decorator_list):
        return returned
    return f"({ast.unparse(shown.args)}){returned}"


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    django.setup()
    LIST.write_text(public_names(), encoding="utf-8")


if __name__ == "__main__":
    main()
