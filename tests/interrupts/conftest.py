"""Fixtures of the tests of interrupted calls: those of the mutex tests."""

from __future__ import annotations

from tests.mutex.conftest import make_owner, tree, two_sessions

__all__ = ["make_owner", "tree", "two_sessions"]
