"""Fixtures of the hand-over tests: those of the tests of locks that do not queue, and losses."""

from __future__ import annotations

from tests.lease.conftest import losses, requests, set_options
from tests.mutex.conftest import (
    broken_link,
    holder,
    make_owner,
    own_zookeeper,
    tree,
    two_sessions,
)
from tests.unfair.conftest import patient

__all__ = [
    "broken_link",
    "holder",
    "losses",
    "make_owner",
    "own_zookeeper",
    "patient",
    "requests",
    "set_options",
    "tree",
    "two_sessions",
]
