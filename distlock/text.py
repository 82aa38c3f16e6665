"""Shows text that others have chosen: on one line, without escapes, and not too long."""

from __future__ import annotations

from typing import Final

#: The characters shown of a text that somebody else has chosen.
MAX_SHOWN: Final = 500


def printable(text: str, most: int = MAX_SHOWN) -> str:
    """Return a text without newlines, escapes and bidi marks. A long text loses its middle."""
    text = clipped(text, most)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def clipped(text: str, most: int = MAX_SHOWN) -> str:
    """Return a long text without its middle, since names and messages differ at their ends."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\N{HORIZONTAL ELLIPSIS}{text[-(most // 2) :]}"
