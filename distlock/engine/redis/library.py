"""The functions that the server runs, named by their text: two versions do not meet."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("tree.lua").read_text()
#: The name of the library, and what the names of its functions begin with.
NAME: Final = f"distlock_{sha256(_SOURCE.encode()).hexdigest()[:12]}"
#: The text for ``FUNCTION LOAD``.
CODE: Final = f"#!lua name={NAME}\n{_SOURCE.replace('LIBRARY', NAME)}".encode()


def function(name: str) -> bytes:
    """Return the name of a function, as the server knows it."""
    return f"{NAME}_{name}".encode()
