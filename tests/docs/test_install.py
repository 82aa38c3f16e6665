"""Until distlock is published, every page installs it from a path, and one page says how."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import PAGES
from tests.kit.helpers import ROOT

INSTALL = "docs/how-to/install.md"


@pytest.mark.parametrize("page", [page for page in PAGES if page != INSTALL])
def test_a_page_that_installs_distlock_links_to_the_page_that_says_how(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not re.search(r"pip install [\"']?(django-)?distlock", text)
    assert "django-distlock[" not in text
    if "/path/to/the/clone" in text:
        assert "install.md" in text
