"""The documentation as a site: `make docs` builds it with Sphinx into build/site.

The source folder is that of the project, so that a link between two files is the same for Sphinx
and for whoever reads the Markdown as it is.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import django

from docs.site import api

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# The API is read from the modules themselves.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
django.setup()

project = "distlock"
copyright = "the distlock authors"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
#: The pages whose lists of links make the navigation.
FIRST_PAGES = {root_doc, "benchmarks/README"}
include_patterns = [
    *("README.md", "CHANGELOG.md", "benchmarks/*.md"),
    *("django-distlock-chaos/README.md", "example_project/README.md", "tests/premises/README.md"),
    "docs/**",
]
exclude_patterns = ["docs/site/**"]

myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
# A block without a language is the text of a terminal.
highlight_language = "none"

# In docstrings `name` is a name of Python.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
toc_object_entries = False

html_theme = "furo"
html_title = "distlock"
html_extra_path = ["index.html"]
html_copy_source = False


def nav(_app: Sphinx, page: str, source: list[str]) -> None:
    """Make the navigation of the lists of links on a first page: one part for each heading."""
    if page not in FIRST_PAGES:
        return
    for caption, part in re.findall(r"(?ms)^## ([^\n]+)\n(.*?)(?=^## |\Z)", source[0]):
        links = re.findall(r"(?m)^- \[([^\]]+)\]\(([^)#]+\.md)\)", part)
        if not links:
            continue
        tree = "\n".join(f"{text} <{link.removesuffix('.md')}>" for text, link in links)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{tree}\n```\n"


def show_docstrings(_app: Sphinx, page: str, source: list[str]) -> None:
    """Show complete docstrings, with links, in the place of the signatures in the source."""
    if page == "docs/reference/api":
        source[0] = api.with_directives(source[0])


def copy_pictures(app: Sphinx, _error: Exception | None) -> None:
    """Copy the pictures of HTML elements, such as the README's, which Sphinx does not look into."""
    shutil.copytree(app.srcdir / "docs/images", app.outdir / "docs/images", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    app.connect("source-read", nav)
    app.connect("source-read", show_docstrings)
    app.connect("build-finished", copy_pictures)
