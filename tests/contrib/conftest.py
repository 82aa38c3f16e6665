from __future__ import annotations

from tests.mutex.conftest import (
    broken_link,
    holder,
    make_owner,
    own_zookeeper,
    tree,
    two_sessions,
)

__all__ = [
    "broken_link",
    "holder",
    "make_owner",
    "own_zookeeper",
    "tree",
    "two_sessions",
]
