"""The public names: those of `public_names.txt`, each with a docstring."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.dispatch import Signal

import distlock
import distlock.inspection
import distlock.testing
from distlock import Hold, Mutex, signals, zk_lock, zk_locked, zk_rwlock, zk_semaphore_mutex
from tests import public_names

PUBLIC = distlock.__all__


def test_the_public_names_are_those_of_the_list() -> None:
    """A change of the list is a change for users. ``python -m tests.public_names`` writes it."""
    assert public_names.LIST.read_text(encoding="utf-8") == public_names.public_names()


@pytest.mark.parametrize("module", [distlock, distlock.inspection, distlock.testing])
def test_the_list_has_all_names_that_a_module_gives(module: ModuleType) -> None:
    listed = re.findall(r"(?m)^([\w.]+)", public_names.LIST.read_text(encoding="utf-8"))
    assert {f"{module.__name__}.{name}" for name in module.__all__} <= set(listed)


def public_objects() -> Iterator[tuple[str, Any]]:
    for name in PUBLIC:
        value = getattr(distlock, name)
        if not isinstance(value, Signal):
            yield name, value
        for member, attribute in vars(value).items() if inspect.isclass(value) else ():
            if not member.startswith("_") and (
                inspect.isfunction(attribute) or isinstance(attribute, property)
            ):
                yield f"{name}.{member}", attribute


@pytest.mark.parametrize(
    "value", [pytest.param(value, id=name) for name, value in public_objects()]
)
def test_every_public_name_has_a_docstring_of_its_own(value: Any) -> None:
    assert value.__doc__
    assert value.__doc__.strip()[0].isupper()


@pytest.mark.parametrize("name", [name for name in PUBLIC if name.startswith("lock_")])
def test_every_signal_is_explained_where_it_is_made(name: str) -> None:
    """A signal is an object, so what it says stands in a comment above it."""
    assert isinstance(getattr(distlock, name), Signal)
    assert re.search(rf"^#: .+\n{name} = ", inspect.getsource(signals), re.MULTILINE)


@pytest.mark.parametrize("function", [zk_lock, zk_locked, zk_rwlock, zk_semaphore_mutex])
def test_only_the_first_argument_goes_without_its_name(function: Any) -> None:
    first, *others = inspect.signature(function).parameters.values()
    assert first.kind is first.POSITIONAL_OR_KEYWORD
    assert {one.kind for one in others} <= {first.KEYWORD_ONLY, first.VAR_KEYWORD}


def test_a_lock_is_imported_without_what_it_does_not_need() -> None:
    """They take as long as all the rest."""
    heavy = {"django.db.models", "django.forms", "django.http", "django.template", "django.views"}
    others = {"celery", "email", "redis", "sqlparse"}
    program = "import sys; from distlock import zk_lock; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "distlock.locks.mutex" in imported
    assert not (heavy | others) & set(imported)


def test_a_mutex_is_taken_like_a_lock_of_the_standard_library() -> None:
    parameters = inspect.signature(Mutex.acquire).parameters
    assert list(parameters) == ["self", "blocking", "timeout"]
    assert parameters["blocking"].default is True
    assert list(inspect.signature(Mutex.release).parameters) == ["self"]


def test_a_mutex_and_a_hold_have_what_the_design_names() -> None:
    of_a_mutex = "acquire release aacquire arelease locked holder participants held"
    assert set(of_a_mutex.split()) <= set(dir(Mutex))
    assert {"lost", "check", "verify"} <= set(vars(Hold))
    assert all(
        f":ivar {name}:" in str(Hold.__doc__) for name in ["key", "path", "token", "acquired_at"]
    )
