"""Copies of a lock object are the same lock: by deepcopy, by pickle, and in a spawned process."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from distlock import zk_leader
from tests.interrupts.recipes import RECIPES
from tests.kit.engines import first_then_deep

if TYPE_CHECKING:
    from collections.abc import Callable

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda lock: pickle.loads(pickle.dumps(lock)),  # noqa: S301 - our own
}

pytestmark = pytest.mark.usefixtures("distlock_memory")


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("options", [{}, {"timeout": 2}])
def test_a_copy_made_while_the_lock_is_held_works_and_is_the_same_lock(
    recipe: str, how: str, options: dict[str, Any]
) -> None:
    lock = RECIPES[recipe](**options)
    with lock:
        other = COPIES[how](lock)
    assert repr(other) == repr(lock)
    with other:
        pass


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_all_options_of_the_original(how: str) -> None:
    leader = zk_leader("<<beat>>", max_hold=5, cancel_on_loss=True)
    other = COPIES[how](leader)
    assert (other.name, other.options) == (leader.name, leader.options)


def _names(lock: Any) -> None:
    assert repr(lock)


@pytest.mark.parametrize("recipe", first_then_deep(RECIPES))
def test_a_lock_is_an_argument_of_a_spawned_process(recipe: str) -> None:
    spawned = multiprocessing.get_context("spawn")
    process = spawned.Process(target=_names, args=(RECIPES[recipe](),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
        process.start()
    process.join(60)
    assert process.exitcode == 0
