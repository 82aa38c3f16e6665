"""The API reference is complete and of today, and its example lists locks as it says."""

from __future__ import annotations

import ast
import re
from threading import Thread

import pytest

import distlock.inspection
import distlock.testing
from distlock import zk_lock
from distlock.testing import hold
from docs.site import api
from tests.docs.blocks import PAGES, python_blocks
from tests.docs.names import Names
from tests.docs.running import run_page
from tests.kit.helpers import eventually

PAGE = "docs/reference/api.md"
TEXT = api.PAGE.read_text(encoding="utf-8")
SHOWN = api.names_in(TEXT)


def imported() -> set[str]:
    """Return the names of distlock that the examples of the documentation import."""
    return {
        f"{node.module}.{alias.name}"
        for page in PAGES
        for block in python_blocks(page)
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("distlock.")
        for alias in node.names
    }


def test_the_signatures_are_those_of_the_source() -> None:
    assert api.filled(TEXT) == TEXT, "Type: make api"


@pytest.mark.parametrize("module", [distlock, distlock.testing, distlock.inspection])
def test_all_public_names_are_there(module: object) -> None:
    name = module.__name__  # type: ignore[attr-defined]
    assert {f"{name}.{each}" for each in module.__all__} <= set(SHOWN)  # type: ignore[attr-defined]


def test_a_name_that_an_example_imports_is_there() -> None:
    assert imported() <= set(SHOWN)


@pytest.mark.parametrize("page", [PAGE])
def test_the_example_lists_holders_and_waiters(
    page: str, names: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    run_page(page, names)
    assert not capsys.readouterr().out
    lock = zk_lock("stock:lamp", timeout=60)

    def wait() -> None:
        with lock:
            pass

    waiter = Thread(target=wait)
    with hold("stock:lamp", by="the warehouse"), zk_lock("report"):
        waiter.start()
        eventually(lambda: len(lock.participants()) == 2)
        names["print_locks"]("stock:")
    waiter.join()
    first, holder, waits = capsys.readouterr().out.splitlines()
    assert first == "stock:lamp: mutex, 1 held, 1 waiting"
    assert re.fullmatch(r"  the warehouse holds it, since 20[-\d]+ [:.\d]+\+00:00", holder)
    assert re.fullmatch(r"  \S+:\d+ Thread-\d+ .* has waited for [\d.]+ s", waits)
