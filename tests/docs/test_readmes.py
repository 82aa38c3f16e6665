"""The two READMEs say the same, and begin with what distlock is and for whom."""

from __future__ import annotations

import re
from posixpath import join, normpath

from tests.docs.test_links import links
from tests.kit.helpers import ROOT

ENGLISH, CHINESE = "README.md", "docs/README.zh.md"


def shape(page: str) -> list[str]:
    """Return the beginnings of headings, items and blocks, in the order of the page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"(?m)^(?:#+ |- |```\w*)", text)


def targets(page: str) -> set[str]:
    """Return the files that a page links to, as paths from the root."""
    files = {link.partition("#")[0] for link in links(page)}
    return {normpath(join(page.rpartition("/")[0], file)) for file in files if file}


def test_they_have_the_same_parts_and_links() -> None:
    assert targets(ENGLISH) - {CHINESE} == targets(CHINESE) - {ENGLISH}
    assert shape(ENGLISH)[:9] == shape(CHINESE)[:9]
    headings = [[part for part in shape(page) if part[0] == "#"] for page in (ENGLISH, CHINESE)]
    assert headings[0] == headings[1]


def test_the_words_come_before_the_first_command() -> None:
    beginning = (ROOT / ENGLISH).read_text(encoding="utf-8").partition("```")[0]
    for word in ("Django sites", "**ZooKeeper**", "**ensemble**", "**session**", "**Curator**"):
        assert word in beginning
