"""Wherever a page, the example shop or the check places the middleware, it is first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from distlock.checks import MIDDLEWARE, check_middleware
from example_project import settings as shop
from tests.docs.blocks import PAGES, python_blocks

if TYPE_CHECKING:
    from pytest_django import Settings

PLACES = [
    (block.page, found)
    for block in [block for page in PAGES for block in python_blocks(page)]
    for found in re.findall(r"(?s)^MIDDLEWARE = \[(.*?)\]", block.text, re.MULTILINE)
]


@pytest.mark.parametrize(("page", "listed"), PLACES)
def test_a_page_puts_the_middleware_first(page: str, listed: str) -> None:  # noqa: ARG001 - for the id
    assert listed.strip().startswith(f'"{MIDDLEWARE}"')


def test_the_readmes_the_tutorial_and_the_first_steps_place_it() -> None:
    assert {
        "README.md",
        "docs/README.zh.md",
        "docs/how-to/from-nothing.md",
        "docs/reference/checks.md",
        "docs/tutorial.md",
    } <= {page for page, _ in PLACES}


def test_the_shop_and_the_check_say_the_same(settings: Settings) -> None:
    assert shop.MIDDLEWARE[0] == MIDDLEWARE
    settings.MIDDLEWARE, settings.ROOT_URLCONF = [], "tests.testproject.urls"
    (message,) = check_middleware()
    assert (message.hint or "").startswith("Put it first")
