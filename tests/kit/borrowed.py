"""The tests of a recipe, to be run once more on another kind of server."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import ModuleType

#: Who asks for one of these breaks a real connection, or stops a real server.
REAL = {
    "broken_link",
    "connected",
    "link",
    "own_ensemble",
    "own_zookeeper",
    "patient_link",
}


def borrow(*modules: ModuleType, but: Collection[str] = ()) -> dict[str, Any]:
    """Return the tests of the modules, for the globals of another.

    :param but: the names of those that cannot run there
    """
    borrowed: dict[str, Any] = {}
    left_out = set(but)
    for module in modules:
        tests = {
            name: test
            for name, test in vars(module).items()
            if name.startswith("test_") and inspect.isfunction(test) and not _is_real(test)
        }
        chosen = {name: test for name, test in tests.items() if name not in left_out}
        assert chosen, f"{module.__name__} has no test to borrow."
        assert not chosen.keys() & borrowed.keys(), "Two tests have one name."
        left_out -= tests.keys()
        borrowed |= chosen
    assert not left_out, f"These are not there any more: {left_out}."
    return borrowed


def _is_real(test: Any) -> bool:
    return bool(REAL & set(inspect.signature(test).parameters))
