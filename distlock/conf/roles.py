"""Defines the three roles of the setting ``ACL``, and their permissions on every node.

The letters are those of ZooKeeper's ``setAcl``. ZooKeeper asks the parent's ACL for ``c`` and
``d``, and the node's own for ``r``, ``w`` and ``a``; every node gets the same list, so both agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

#: create, delete, read, write, administer (set the ACL): the bits of ZooKeeper's permissions.
BITS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}

#: The application takes locks. Operators look, ask holders to leave, break, sweep, and set the ACL.
#: Readers look.
ROLES: Final = {"app": "cdrw", "operators": "drwa", "readers": "r"}
_REQUIRED: Final = {"app", "operators"}  # without an administrator the ACL could never change again

_DIGEST = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")


def bits(letters: str) -> int:
    """Return permissions as ZooKeeper's number."""
    return sum(BITS[letter] for letter in letters)


def is_roles(value: object) -> bool:
    """Return whether a value of ``ACL`` names the users of the roles, in a form that can work."""
    return (
        isinstance(value, Mapping)
        and set(value) >= _REQUIRED
        and set(value) <= set(ROLES)
        and all(isinstance(users, list | tuple) and users for users in value.values())
        and all(_is_user(user) for users in value.values() for user in users)
    )


def is_pair(value: object) -> bool:
    """Return whether it is a scheme and what belongs to it, neither of them empty."""
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(text, str) and text for text in value)
    )


def _is_user(user: Any) -> bool:
    # A password in place of its digest would lock everybody out, and everybody could read it.
    return (
        is_pair(user)
        and user[0] != "auth"
        and (user[0] != "digest" or _DIGEST.fullmatch(user[1]) is not None)
    )
