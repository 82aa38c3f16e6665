"""axe-core, the accessibility checker, in a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"

# Links in the breadcrumbs, and the search of a list of models, are Django's own.
RUN = """
async () => (
    await axe.run({exclude: [".breadcrumbs", "#changelist-search"]})
).violations.map((one) => ({
    id: one.id, impact: one.impact, help: one.help,
    nodes: one.nodes.map((node) => node.html.slice(0, 200) + " — " + (node.any[0] || {}).message),
}))
"""


def findings(page: Page) -> list[dict[str, object]]:
    """Return what keeps somebody from using the page, as far as a program can tell."""
    if not AXE.exists():
        pytest.skip("axe-core was not found. Type: .ci/setup axe")
    page.evaluate(AXE.read_text())
    found: list[dict[str, object]] = page.evaluate(RUN)
    return found
