"""The tutorial can be typed from the first line to the last, in an empty folder."""

from __future__ import annotations

import re
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from shutil import which
from urllib.parse import urlencode

import pytest

from tests.packaging.conftest import Built
from tests.packaging.environment import Environment
from tests.packaging.pages import FROM_NOTHING, TUTORIAL, blocks
from tests.packaging.typist import Typist

pytestmark = pytest.mark.deep

#: What the environment of the test stands for.
INSTALLATION = (
    "python3 -m venv .venv",
    ". .venv/bin/activate",
    "python -m pip install '/path/to/the/clone[celery]'",
)


@pytest.mark.timeout(900)
@pytest.mark.skipif(not which("curl"), reason="no curl here: .ci/setup curl")
def test_the_tutorial_can_be_typed(built: Built, tmp_path: Path) -> None:
    Environment(tmp_path / ".venv", built.wheel, extras=["celery"])
    with Typist(tmp_path, installed=INSTALLATION) as reader:
        for block in blocks(TUTORIAL):
            reader.type(block)
            if "distlock list" in block.text:
                assert row("stock:lamp", of=admin_page(reader.site))
        typed = [command for command, _ in reader.typed]
    assert set(INSTALLATION) < set(typed)


def admin_page(site: str) -> str:
    """Log in as the user of the tutorial, and return the page of all locks."""
    cookies = CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    address = f"http://{site}/admin/login/?next=/admin/distlock/lock/"
    opener.open(address).close()
    (token,) = [cookie.value for cookie in cookies if cookie.name == "csrftoken"]
    form = {"username": "admin", "password": "secret", "csrfmiddlewaretoken": token}
    with opener.open(address, urlencode(form).encode()) as page:
        return str(page.read(), "utf-8")


def row(key: str, *, of: str) -> bool:
    return bool(re.search(rf"{key}.*MainThread", of, re.DOTALL))


@pytest.mark.parametrize("page", [TUTORIAL, FROM_NOTHING], ids=lambda page: page.stem)
def test_each_block_of_a_page_has_a_purpose(page: Path) -> None:
    fences = re.findall("(?m)^ *```", page.read_text(encoding="utf-8"))
    assert 2 * len(list(blocks(page))) == len(fences)
