"""Where the pages of the documentation have the figures of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def fill(page: Path, figures: str, block: str = "figures") -> None:
    """Put the figures of a run in the place of those of the one before."""
    begin, end = f"<!-- {block}: begin -->", f"<!-- {block}: end -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{figures}\n{end}{after}")
