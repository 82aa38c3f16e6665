"""Fixtures of the worker tests: those of the mutex tests."""

from __future__ import annotations

from tests.mutex.conftest import (
    broken_link,
    tree,
    two_sessions,
)

__all__ = ["broken_link", "tree", "two_sessions"]
