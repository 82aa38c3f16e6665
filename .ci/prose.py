"""Finds sentences that open with a headless Who, What, Whose or That, which read as translated.

    python .ci/prose.py PATH ...

A path is a file, or a folder of files: Markdown, and Python for its docstrings and comments. A
question may open so.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADLESS = re.compile(
    r"(Who|Whom|Whose|What|That|Whoever|Whomever|Whatever|Whichever|Those who|One who)\b(?!.*\?)"
)
#: Where a sentence may begin: in a line, in a cell of a table, or after another sentence.
_BEGINNING = re.compile(r"^[\s#>*|\d.\-]*|\| *|(?<=[.!:;)*]) +[*\"(\[]*")
_CODE = re.compile(r"(?ms)^ *```.*?^ *```$|<!--.*?-->|`[^`\n]*`")
_BEFORE_DOCSTRING = {tokenize.ENCODING, tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE}


def main(paths: list[str]) -> int:
    found = [
        f"{file}:{number}: {sentence}"
        for path in paths
        for file in files(Path(path))
        for number, line in prose(file)
        for sentence in _BEGINNING.split(line)
        if _HEADLESS.match(sentence)
    ]
    sys.stdout.writelines(f"{each}\n" for each in found)
    return 1 if found else 0


def files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted([*path.rglob("*.md"), *path.rglob("*.py")])
    return [path]


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of `file` without its code, each with its number."""
    text = file.read_text(encoding="utf-8")
    for first, part in comments(text) if file.suffix == ".py" else [(1, text)]:
        # An x keeps a sentence in one piece that begins with code.
        without_code = _CODE.sub(lambda code: "\n" * code[0].count("\n") or "x", part)
        yield from enumerate(without_code.splitlines(), first)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and comments of Python, each with the number of its first line."""
    before = tokenize.ENCODING
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
        elif token.type == tokenize.STRING and before in _BEFORE_DOCSTRING:
            yield token.start[0], token.string.strip("\"'")
        if token.type not in {tokenize.COMMENT, tokenize.NL}:
            before = token.type


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
