"""The script that the server runs, named by the digest of its text: two versions do not meet."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import Final

#: The text for ``SCRIPT LOAD``.
CODE: Final = Path(__file__).with_name("tree.lua").read_bytes()


def digest(code: bytes) -> bytes:
    """Return the name of a script, as the server knows it."""
    return sha1(code, usedforsecurity=False).hexdigest().encode()


NAME: Final = digest(CODE)


def mark(prefix: bytes) -> bytes:
    """Return a script that a server has once it has had a session with this prefix.

    The server forgets its scripts when it ends, and with ``SCRIPT FLUSH``.
    """
    return b"return 1 -- " + digest(prefix)
