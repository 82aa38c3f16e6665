"""Fixtures of the tests of read/write locks: those of the mutex tests."""

from __future__ import annotations

from tests.mutex.conftest import (
    broken_link,
    make_owner,
    tree,
    two_sessions,
)

__all__ = ["broken_link", "make_owner", "tree", "two_sessions"]
