from __future__ import annotations

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
    "tree",
    "two_sessions",
]
