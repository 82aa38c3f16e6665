"""Fixtures of the beat tests: those of the mutex tests."""

from __future__ import annotations

from tests.mutex.conftest import _main_thread_holds_nothing, broken_link, tree, two_sessions

__all__ = ["_main_thread_holds_nothing", "broken_link", "tree", "two_sessions"]
