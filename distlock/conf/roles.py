"""Defines the three roles of the setting ``ACL``, and their permissions on every node.

The letters are those of ZooKeeper's ``setAcl``. ZooKeeper asks the parent's ACL for ``c`` and
``d``, and the node's own for ``r``, ``w`` and ``a``; every node gets the same list, so both agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

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


def _is_user(user: object) -> bool:
    if not (isinstance(user, list | tuple) and len(user) == 2):
        return False
    scheme, name = user
    if not (isinstance(scheme, str) and isinstance(name, str) and scheme and name):
        return False
    # A password in place of its digest would lock everybody out, and everybody could read it.
    return scheme != "auth" and (scheme != "digest" or _DIGEST.fullmatch(name) is not None)
