"""The tests of the recipes, to be run once more on another kind of server."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

#: Who asks for one of these breaks a real connection, or stops a real server.
REAL = {
    "broken_link",
    "connected",
    "link",
    "own_zookeeper",
    "patient_link",
}

#: The folders, and their modules whose tests ask no more of a server than to be one.
RECIPES = {
    "leader": "test_leader test_run",
    "lease": "test_bad_input test_blocks test_expiry test_leases",
    "multilock": "test_mistakes test_multilock test_ports test_processes",
    "mutex": "test_fairness test_processes test_recovery test_reentrancy test_signals_and_looking"
    " test_timeouts",
    "rwlock": "test_downgrade test_processes test_rwlock test_upgrade",
    "semaphore": "test_limits test_mistakes test_semaphore test_semaphore_mutex",
}


def borrow(folders: dict[str, str], *, but: Collection[str] = ()) -> dict[str, type]:
    """Return a class with the tests of each folder, for the globals of a module.

    :param but: the names of tests and of modules that cannot run there
    """
    left_out = set(but)
    classes = {}
    for folder, names in folders.items():
        borrowed: dict[str, Any] = {}
        for name in names.split():
            tests = _tests_of(f"tests.{folder}.{name}")
            chosen = {} if name in but else {n: tests[n] for n in tests if n not in but}
            assert chosen or name in but, f"{folder}/{name} has no test to borrow."
            assert not chosen.keys() & borrowed.keys(), "Two tests have one name."
            left_out -= {name, *tests}
            borrowed |= chosen
        classes[f"Test{folder.capitalize()}"] = type(folder, (), borrowed)
    assert not left_out, f"These are not there any more: {left_out}."
    return classes


def _tests_of(module: str) -> dict[str, Any]:
    """Return the functions as they are in a class that needs no instance."""
    return {
        name: staticmethod(test)
        for name, test in vars(import_module(module)).items()
        if name.startswith("test_")
        and inspect.isfunction(test)
        and not REAL & set(inspect.signature(test).parameters)
    }
