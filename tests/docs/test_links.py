"""Links between the pages, to headings and files lead somewhere; tests that pages name exist."""

from __future__ import annotations

import re
from os.path import relpath
from pathlib import Path

import pytest

import distlock
from tests.docs.blocks import FENCE, PAGES
from tests.kit.helpers import ROOT

WITH_LINKS = [*PAGES, "CHANGELOG.md"]
INDEX = "docs/index.md"
#: The first page of the benchmarks' figures.
FIGURES = "benchmarks/README.md"


def prose(path: Path) -> str:
    """Return a page without its blocks of code."""
    return FENCE.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"(?m)^#+ +(.+?) *$", prose(path)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
    return {f"{anchor}-{n}" if n else anchor for anchor in found for n in range(found[anchor] + 1)}


def links(page: str) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", prose(ROOT / page))
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.parametrize("page", WITH_LINKS)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    broken = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(link)
    assert not broken


def test_links_and_anchors_are_found() -> None:
    assert "../../README.md#when-not-to-use-it" in links("docs/how-to/choose-a-lock.md")
    assert {"when-not-to-use-it", "distlock"} <= anchors(ROOT / "README.md")


@pytest.mark.parametrize("page", [page for page in PAGES if page != INDEX])
def test_a_page_is_on_the_first_page(page: str) -> None:
    first = FIGURES if page.startswith("benchmarks/") and page != FIGURES else INDEX
    folder = (ROOT / first).parent
    assert relpath(ROOT / page, folder) in links(first)


# --- names of tests ------------------------------------------------------------------------------


FILE = ROOT / "docs" / "reference" / "curator.md"
PAGE = FILE.read_text()
PREMISES = (ROOT / "tests/premises/README.md").read_text()
PORTS = (ROOT / "tests" / "interop" / "curator.md").read_text()
TESTS = sorted(set(re.findall(r"`((?:tests|distlock)/[\w/]+\.py)(?:::(\w+))?`", PORTS + PREMISES)))


def test_the_pages_name_our_tests() -> None:
    assert len(TESTS) > 100


@pytest.mark.parametrize(("file", "name"), TESTS, ids=["::".join(test) for test in TESTS])
def test_a_test_that_a_page_names_exists(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    assert not name or re.search(rf"(?m)^ *def {name}\(", text)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bzk_\w+", PAGE))))
def test_a_function_that_the_page_names_is_public(name: str) -> None:
    assert name in distlock.__all__
