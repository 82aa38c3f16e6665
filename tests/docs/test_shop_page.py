"""The README of the example shop quotes its files as they are."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import FENCE
from tests.kit.helpers import ROOT

SHOP = ROOT / "example_project"
TEXT = (SHOP / "README.md").read_text()
#: The file that the heading of a part names, and each block that the part quotes from it.
QUOTES = [
    (file, fence["text"])
    for file, part in re.findall(r"(?ms)^## `(\S+)`(.*?)(?=^## |\Z)", TEXT)
    for fence in FENCE.finditer(part)
    if fence["language"] == "py"
]


@pytest.mark.parametrize(("file", "quote"), QUOTES)
def test_a_quote_is_in_its_file(file: str, quote: str) -> None:
    assert quote in (SHOP / file).read_text()


def test_all_quotes_are_found() -> None:
    assert len(QUOTES) == TEXT.count("```py\n") > 4


def test_the_files_that_it_names_exist() -> None:
    names = re.findall(r"`([\w/]+\.(?:py|js|html|yaml)|\w+/)`", FENCE.sub("", TEXT))
    assert len(names) > 10
    for name in names:
        folders = (ROOT, SHOP, SHOP / "templates/distlock")
        assert any((folder / name).exists() for folder in folders), name
