"""Reads the pages that can be typed from the first line to the last."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kit.helpers import ROOT

TUTORIAL = ROOT / "docs/tutorial.md"
FROM_NOTHING = ROOT / "docs/how-to/from-nothing.md"

_BLOCK = re.compile(
    r"(?m)(?P<lead>.*)\n\n```(?P<language>\w*)\n(?P<text>(?:(?!```).*\n)*?)```$|^```.*"
)
_FILE = re.compile(r"(?P<end>[Aa]t the end of )?`(?P<name>[\w./]+)`:$")


class Block(NamedTuple):
    """A fenced block: a file, commands, input of a Python shell, or the output before it."""

    kind: str
    text: str
    file: str = ""
    appended: bool = False


def blocks(page: Path, section: str = "") -> Iterator[Block]:
    """Yield the blocks of a page, or of a section of it, in order.

    :raises ValueError: nobody knows what a block is
    """
    text = page.read_text(encoding="utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    for found in _BLOCK.finditer(text):
        lead, language, text = found["lead"], found["language"], found["text"]
        file = _FILE.search(lead or "")
        if language in {"python", "html"} and file:
            yield Block("file", text, file["name"], bool(file["end"]))
        elif language in {"sh", "pycon", "text"}:
            yield Block(language, text)
        else:
            raise ValueError(f"What is this block for? {found[0]}")
