"""Fixtures of the tests of async code: those of the mutex tests."""

from __future__ import annotations

from tests.mutex.conftest import (
    broken_link,
    holder,
    make_owner,
    tree,
    two_sessions,
)

__all__ = [
    "broken_link",
    "holder",
    "make_owner",
    "tree",
    "two_sessions",
]
