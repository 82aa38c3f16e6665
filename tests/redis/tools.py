"""Tools of the tests of refusals."""

from __future__ import annotations

from typing import Final

import pytest

from distlock import LockUnavailable, zk_lock

#: How each password of these tests begins.
SECRET: Final = "s3cret"


def refusal() -> str:
    """Return what an acquire says; it may tell no password."""
    with pytest.raises(LockUnavailable) as refused:
        zk_lock("key").acquire()
    message = str(refused.value)
    assert SECRET not in message
    return message
