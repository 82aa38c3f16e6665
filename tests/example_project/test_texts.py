"""The shop's texts: each is in the catalogue, in Chinese.

After a text has changed: ``cd example_project``, then as `tests.test_locale` says.
"""

from __future__ import annotations

from pathlib import Path

import distlock
import example_project
from tests.kit.catalogues import Text, compiled, read_po, texts_of_python, texts_of_template

SHOP = Path(example_project.__file__).parent
CHINESE = "locale/zh_Hans/LC_MESSAGES"


def test_each_text_is_translated() -> None:
    marked: set[Text] = set()
    for path in SHOP.rglob("*.py"):
        marked.update(texts_of_python(path.read_text(encoding="utf-8")))
    for path in SHOP.rglob("templates/**/*.html"):
        marked.update(texts_of_template(path.read_text(encoding="utf-8")))
    translations = read_po(SHOP / CHINESE / "django.po")
    assert translations.keys() == marked
    assert all(all(forms) for forms in translations.values())
    assert "fuzzy" not in (SHOP / CHINESE / "django.po").read_text(encoding="utf-8")


def test_the_compiled_texts_are_the_written_ones() -> None:
    written = read_po(SHOP / CHINESE / "django.po")
    assert compiled(SHOP / CHINESE / "django.mo") == {
        text.text: translated for text, (translated,) in written.items()
    }


def test_texts_of_the_app_are_as_the_app_has_them() -> None:
    """The shop's catalogue comes first: another word would change the app's pages."""
    ours = compiled(SHOP / CHINESE / "django.mo")
    theirs = compiled(Path(distlock.__file__).parent / CHINESE / "django.mo")
    shared = ours.keys() & theirs.keys()
    assert {key: ours[key] for key in shared} == {key: theirs[key] for key in shared}
