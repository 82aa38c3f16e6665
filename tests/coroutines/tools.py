"""Tools of the tests of async code."""

from __future__ import annotations

from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree


def await_empty(tree: Tree, path: str) -> None:
    """Wait until a node has no children, or is not there."""
    eventually(lambda: not tree.children(path), PATIENCE, f"nothing in {path}")
