"""The old dotted paths of modules that have moved still give their modules."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from distlock.moved import MOVED


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_path_gives_the_module_and_names_the_new_path(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"distlock.{old}", raising=False)
    with pytest.warns(DeprecationWarning, match=f"distlock.{old} is distlock.{new} now"):
        module = import_module(f"distlock.{old}")
    assert module is import_module(f"distlock.{new}")


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"distlock\.nothing"):
        import_module("distlock.nothing")
