"""The catalogues: each text of the package is in them, and in Chinese.

After a text has changed: ``cd distlock``, ``django-admin makemessages --all --no-obsolete
--add-location never``, translate what is new or fuzzy, ``django-admin compilemessages``.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import django
import pytest
from django.http import HttpRequest
from django.utils import translation
from pytest_django import Settings

import distlock
from distlock import LockBusy, LockUnavailable
from distlock.responses import refusal
from tests.kit.catalogues import Text, compiled, read_po, texts_of_python, texts_of_template
from tests.testproject.templates import TEMPLATES

PACKAGE = Path(distlock.__file__).parent
CHINESE = PACKAGE / "locale/zh_Hans/LC_MESSAGES"
ENGLISH = PACKAGE / "locale/en/LC_MESSAGES"

each = pytest.mark.parametrize("folder", [ENGLISH, CHINESE], ids=["en", "zh_Hans"])


def marked() -> set[Text]:
    """All that the package marks to be translated."""
    found: set[Text] = set()
    for path in PACKAGE.rglob("*.py"):
        found.update(texts_of_python(path.read_text(encoding="utf-8")))
    for path in PACKAGE.rglob("templates/**/*.html"):
        found.update(texts_of_template(path.read_text(encoding="utf-8")))
    return found


@each
def test_the_catalogue_has_all_texts_and_no_others(folder: Path) -> None:
    assert read_po(folder / "django.po").keys() == marked(), f"See {__name__} for what to do."


def test_all_is_translated() -> None:
    translations = read_po(CHINESE / "django.po")
    assert [text for text, forms in translations.items() if not all(forms)] == []
    assert {len(forms) for forms in translations.values()} == {1}
    assert "fuzzy" not in (CHINESE / "django.po").read_text(encoding="utf-8")


@pytest.mark.parametrize("part", [r"%\(\w+\)[.\d]*[a-z]", r"\{\w+\}", r"<[^>]*>"], ids=range(3))
def test_translations_have_the_placeholders_and_tags_of_the_text(part: str) -> None:
    def parts(text: str) -> Counter[str]:
        return Counter(re.findall(part, text))

    found = 0
    for text, (translated,) in read_po(CHINESE / "django.po").items():
        # With one form for any number, that has the number.
        assert parts(translated) == parts(text.plural or text.text), text
        found += bool(parts(translated))
    assert found


@each
def test_what_is_compiled_is_what_was_written(folder: Path) -> None:
    expected: dict[object, str] = {}
    for text, forms in read_po(folder / "django.po").items():
        key = f"{text.context}\x04{text.text}" if text.context else text.text
        for form, translated in enumerate(forms):
            if translated:
                expected[(key, form) if text.plural else key] = translated
    assert compiled(folder / "django.mo") == expected, f"See {__name__} for what to do."


def test_what_django_itself_says_is_said_as_it_does() -> None:
    """Catalogues are merged: another word would change the site's other pages, too."""
    admin = Path(django.__file__).parent / "contrib/admin/locale/zh_Hans/LC_MESSAGES/django.mo"
    theirs, ours = compiled(admin), compiled(CHINESE / "django.mo")
    shared = theirs.keys() & ours.keys()
    assert "Home" in shared
    assert {key: ours[key] for key in shared} == {key: theirs[key] for key in shared}


@pytest.mark.parametrize(
    ("error", "title"),
    [
        (LockBusy("busy"), "其他人正在处理此内容"),
        (LockUnavailable("away"), "目前无法安全地执行此操作"),
    ],
    ids=["busy", "unavailable"],
)
def test_a_refusal_is_in_chinese(error: LockBusy, title: str, settings: Settings) -> None:
    settings.TEMPLATES = TEMPLATES
    with translation.override("zh-hans"):
        page = refusal(HttpRequest(), error).content.decode()
    assert title in page
    assert '<html lang="zh-hans">' in page
    assert re.search(r"请在 \d+ 秒后重试。", page)
