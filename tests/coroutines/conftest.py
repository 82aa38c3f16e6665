"""Fixtures of the tests of async code: those of the mutex tests."""

from __future__ import annotations

from tests.mutex.conftest import (
    _main_thread_holds_nothing,
    broken_link,
    holder,
    make_owner,
    tree,
    two_sessions,
)

__all__ = [
    "_main_thread_holds_nothing",
    "broken_link",
    "holder",
    "make_owner",
    "tree",
    "two_sessions",
]
