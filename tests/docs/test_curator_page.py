"""The pages on Curator's tests and on premises name tests that exist, and functions of ours."""

from __future__ import annotations

import re

import pytest

import distlock
from tests.kit.helpers import ROOT

FILE = ROOT / "docs" / "reference" / "curator.md"
PAGE = FILE.read_text()
PREMISES = FILE.with_name("premises.md").read_text()
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
