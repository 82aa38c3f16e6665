"""Fixtures of the tests of locks that do not queue: those of the mutex and lease tests."""

from __future__ import annotations
