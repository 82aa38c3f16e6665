"""The pages of the documentation, and the fenced blocks in them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from tests.kit.helpers import ROOT

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [
        *(ROOT / f"{folder}README.md" for folder in ("", "example_project/")),
        ROOT / "django-distlock-chaos/README.md",
        ROOT / "tests/premises/README.md",
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("docs/**/*.md"),
    ]
)

#: The pages that `tests/packaging` types into a new project: here their blocks are only compiled.
TYPED = {"docs/tutorial.md", "docs/how-to/from-nothing.md"}

#: Before a block that cannot run, with the reason: it is compiled all the same.
_ONLY_COMPILED = re.compile(r"<!-- not run: (?P<reason>.+) -->\n\s*\Z")
FENCE = re.compile(r"(?ms)^(?P<indent> *)```(?P<language>[\w{}-]*)\n(?P<text>.*?)^(?P=indent)```$")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    #: Why it is compiled, and not run; empty for most.
    reason: str = ""

    def compile(self) -> Any:
        """Compile the block, so that errors name the page and the line in it."""
        # A view's module may begin so. It has to be the first line, and one place is enough.
        code = self.text.replace("from __future__ import annotations\n", "\n")
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return compile("\n" * self.line + code, ROOT / self.page, "exec", flags, dont_inherit=True)

    def run(self, names: dict[str, Any]) -> None:
        """Run it as part of a module that has `names`."""
        code = self.compile()
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))  # noqa: S307 - our own documentation
        else:
            exec(code, names)  # noqa: S102


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    for fence in FENCE.finditer(text):
        marked = _ONLY_COMPILED.search(text[: fence.start()])
        yield Block(
            page,
            text.count("\n", 0, fence.start()) + 1,
            fence["language"],
            dedent(fence["text"]),
            marked["reason"] if marked else "tests/packaging types it" * (page in TYPED),
        )


def python_blocks(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]
