"""The commands that the documentation shows exist, with the options that it gives them."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandParser

from distlock.management.commands.distlock import subcommands
from distlock.management.output import add_options
from tests.docs.blocks import PAGES
from tests.kit.helpers import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
REFERENCE = (ROOT / "docs/reference/commands.md").read_text()
CHAOS = (ROOT / "django-distlock-chaos/README.md").read_text()


def shown(pattern: str) -> list[tuple[str, str]]:
    """Return page and command for each command line, in a block or in the text."""
    return sorted(
        {
            (page, found)
            for page in PAGES
            for found in re.findall(pattern, (ROOT / page).read_text())
        }
    )


COMMANDS = shown(r"manage\.py ([a-z_]+(?: [^\n`|#]*)?)")


def parse(line: str) -> argparse.Namespace:
    """Parse a command line as `manage.py` does.

    :raises CommandError: there is no such option or subcommand
    """
    name, *arguments = shlex.split(re.sub(r" > .*", "", line))
    app = get_commands()[name]
    command = app if isinstance(app, BaseCommand) else load_command_class(app, name)
    parser = command.create_parser("manage.py", name)
    return parser.parse_args([a for a in arguments if a not in {">/dev/null", "&", "wait)"}])


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_a_page_is_understood(page: str, line: str) -> None:  # noqa: ARG001 - for the id
    words = line.split()
    if words[0] == "distlock" and len(words) < 3:  # it is spoken of, perhaps without its arguments
        assert not words[1:] or words[1] in {*subcommands(), "<subcommand>"}
    else:
        parse(line)


@pytest.mark.parametrize("name", subcommands())
def test_each_subcommand_is_in_the_reference(name: str) -> None:
    assert f"| `{name}" in REFERENCE


@pytest.mark.parametrize("name", subcommands())
def test_each_option_is_in_the_reference_and_has_a_help(name: str) -> None:
    parser, common = CommandParser(add_help=False), CommandParser(add_help=False)
    subcommands()[name].add_arguments(parser)
    add_options(common, "json")
    top, *sections = re.split(r"(?m)^## ", REFERENCE)
    about = [section for section in sections if name in section.partition("\n")[0].split()]
    text = CHAOS if name == "chaos" else about[0]
    assert all(option in top for option in options_of(common))
    assert [one for one in options_of(parser) - options_of(common) if one not in text] == []
    assert all(action.help for action in parser._actions if action.option_strings)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the long options of a parser."""
    return {
        option
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }


@pytest.mark.parametrize(("page", "target"), shown(r"(?<=[`\n])make ([a-z]+)"))
def test_a_target_of_make_exists(page: str, target: str) -> None:  # noqa: ARG001 - for the id
    assert re.search(rf"(?m)^{target}:", MAKEFILE)
