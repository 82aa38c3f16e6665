"""Java and Python contend for the same lock, and a witness finds any overlap (promises 1 and 10).

Some seconds in every run. By hand, for a minute each::

    DISTLOCK_CONTENTION_SECONDS=60 pytest tests/interop/test_java_contention.py
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.interop.tools import KEY, Count, JavaPeer, Witness, contend
from tests.kit.helpers import eventually
from tests.kit.tools import MakeOwner, Tree

pytestmark = pytest.mark.deep

SECONDS = float(os.environ.get("DISTLOCK_CONTENTION_SECONDS", "3"))
#: How much longer the last round may take, in seconds.
LAST_ROUND = 60


class Contention:
    """Threads of both languages that contend for `KEY`, each with its recipe, before a witness."""

    def __init__(self, java: JavaPeer, tree: Tree, make_owner: MakeOwner, folder: Path) -> None:
        self._java = java
        self._path = tree.path(KEY)
        self._make_owner = make_owner
        self._folder = folder

    def run(self, recipes: list[str], seconds: float) -> dict[str, list[Count]]:
        """What the threads of each language counted, one thread for each of the recipes.

        Python's have two sessions, as in two processes, so that they also hand over locally.
        """
        java = [self.in_java(recipe, seconds, thread) for thread, recipe in enumerate(recipes)]
        python = [
            self._make_owner().submit(
                contend, recipe, Witness(self._folder, recipe), seconds, using
            )
            for recipe, using in zip(recipes, ["default", "default", "other"], strict=False)
        ]
        told = [future.result(seconds + LAST_ROUND).split() for future in java]
        return {
            "Java": [Count(int(holds), int(overlaps)) for holds, overlaps in told],
            "Python": [future.result(LAST_ROUND) for future in python],
        }

    def in_java(self, recipe: str, seconds: float, thread: int = 0) -> Future[str]:
        arguments = recipe, self._path, self._folder, seconds
        return self._java.order(f"contends-{thread}", "contend", *arguments)


@pytest.fixture
def contention(
    java: JavaPeer, tree: Tree, make_owner: MakeOwner, witness_folder: Path
) -> Contention:
    return Contention(java, tree, make_owner, witness_folder)


@pytest.mark.parametrize(
    "recipes",
    [
        ["mutex", "mutex", "mutex"],
        ["write", "read", "read"],
        ["semaphore=2", "semaphore=2", "semaphore=2"],
    ],
    ids=["mutex", "read/write", "semaphore"],
)
def test_no_two_are_inside_who_may_not_be_there_together(
    contention: Contention, recipes: list[str]
) -> None:
    counts = contention.run(recipes, SECONDS)
    assert not any(count.overlaps for count in [*counts["Java"], *counts["Python"]]), counts


def test_without_a_lock_the_witness_finds_overlaps_of_java_and_python(
    contention: Contention,
) -> None:
    """One thread of each language, so whoever meets somebody meets the other language."""

    def overlaps() -> int:
        counts = contention.run(["none"], 0.2)
        return sum(count.overlaps for count in [*counts["Java"], *counts["Python"]])

    eventually(overlaps, LAST_ROUND, "an overlap")
