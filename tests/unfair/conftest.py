"""Fixtures of the tests of locks that do not queue: those of the mutex and lease tests."""

from __future__ import annotations

from tests.lease.conftest import requests, set_options
from tests.mutex.conftest import (
    _main_thread_holds_nothing,
    broken_link,
    holder,
    make_owner,
    own_zookeeper,
    tree,
    two_sessions,
)

__all__ = [
    "_main_thread_holds_nothing",
    "broken_link",
    "holder",
    "make_owner",
    "own_zookeeper",
    "requests",
    "set_options",
    "tree",
    "two_sessions",
]
