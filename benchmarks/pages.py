"""Where the pages of the documentation have the figures of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"


def fill(page: Path, figures: str) -> None:
    """Put the figures of a run in the place of those of the one before."""
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n\n{figures}\n{_END}{after}")
