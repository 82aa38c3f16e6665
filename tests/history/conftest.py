"""Fixtures of the history's tests: those of the mutex."""

from __future__ import annotations

from tests.mutex.conftest import make_owner, tree, two_sessions

__all__ = ["make_owner", "tree", "two_sessions"]
