"""The paths of nodes: which are allowed, and what is above a node.

Source: ZooKeeper's ``PathUtils``.
"""

from __future__ import annotations

import re
from typing import Final

from .errors import Code, Refused

_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def validate(path: str) -> None:
    """Go on only if a node may have this path.

    :raises Refused: it may not
    """
    first, *names = path.split("/")
    allowed = path == "/" or not {"", ".", ".."} & set(names)
    if first or not names or not allowed or _FORBIDDEN.search(path):
        raise Refused(Code.BAD_ARGUMENTS)


def parent(path: str) -> str:
    """Return the path of the node above."""
    return path.rpartition("/")[0] or "/"
