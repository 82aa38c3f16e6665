"""What is published: the wheel holds the app and nothing else, and its metadata is right."""

from __future__ import annotations

import re
import tarfile
import zipfile

from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet

from tests.kit.helpers import ROOT
from tests.packaging.conftest import Built

EXTRAS = {"celery", "drf", "gevent", "health", "otel", "postgresql", "prometheus", "redis", "sasl"}
#: For those who work on distlock itself.
OWN_EXTRAS = {"bench", "dev", "docs"}


def names(built: Built) -> set[str]:
    with zipfile.ZipFile(built.wheel) as wheel:
        return set(wheel.namelist())


def metadata(built: Built) -> Metadata:
    with zipfile.ZipFile(built.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(wheel.read(name), validate=True)


def test_the_wheel_holds_all_files_of_the_app_and_no_others(built: Built) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "distlock").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name for name in names(built) if ".dist-info/" not in name}
    assert found == files
    assert {
        "distlock/py.typed",
        "distlock/migrations/0001_initial.py",
        "distlock/locale/zh_Hans/LC_MESSAGES/django.mo",
        "distlock/static/distlock/page.js",
        "distlock/templates/distlock/423.html",
        "distlock/templates/admin/distlock/lock/list.html",
    } <= found


def test_the_page_about_the_installation_names_the_wheel_and_the_extras(built: Built) -> None:
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"django_distlock-[^\s`]+", page)) == {built.wheel.name}
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", page)) == EXTRAS


def test_the_wheel_has_the_licence(built: Built) -> None:
    (name,) = (name for name in names(built) if name.endswith("/licenses/LICENSE"))
    with zipfile.ZipFile(built.wheel) as wheel:
        assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()


def test_the_sdist_has_what_the_tests_need_and_nothing_that_was_made(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"Makefile", "manage.py", "pyproject.toml", "tests/conftest.py", ".ci/setup"} <= files
    assert "django-distlock-chaos/pyproject.toml" in files
    made = re.compile(r"(^|/)(node_modules|__pycache__|\.venv|.*\.sqlite3|.*\.pyc)(/|$)")
    assert [name for name in files if made.search(name)] == []


def test_the_metadata_is_valid_and_says_what_is_supported(built: Built) -> None:
    found = metadata(built)
    assert found.name == "django-distlock"
    assert found.license_expression == "MIT"
    assert found.requires_python == SpecifierSet(">=3.10")
    assert found.description_content_type == "text/markdown"
    classifiers = found.classifiers or []
    for version in ("5.2", "6.0", "6.1"):
        assert f"Framework :: Django :: {version}" in classifiers
    for minor in range(10, 15):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers


README = (ROOT / "README.md").read_text(encoding="utf-8")
#: What leads nowhere on the page of a package index.
RELATIVE = re.compile(r"""\]\((?!https?:)|(?:src|srcset)="(?!https?:)""")


def test_the_description_is_the_readme_without_links_between_files(built: Built) -> None:
    found = metadata(built).description or ""
    assert RELATIVE.search(README)
    assert not RELATIVE.search(found)
    assert re.findall(r"(?m)^#+ .*$", found) == re.findall(r"(?m)^#+ .*$", README)
    assert "Promises and limits of a lock explains the consequences" in found


def test_the_extras_are_these(built: Built) -> None:
    found = metadata(built)
    assert set(found.provides_extra or ()) - OWN_EXTRAS == EXTRAS
    required = {one.name for one in found.requires_dist or () if one.marker is None}
    assert required == {"asgiref", "django", "kazoo"}  # asgiref is Django's, and bounded
