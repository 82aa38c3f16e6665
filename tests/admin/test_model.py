"""The model has no table; permissions come with it, and a site without an admin needs it not."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.db import connection

from distlock.models import Lock
from tests.kit.helpers import spawn_python

SITE = """
import sys
from django.conf import settings
settings.configure(
    INSTALLED_APPS={apps!r},
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    USE_TZ=True,
)
import django; django.setup()
from django.core.management import call_command
call_command("check")
call_command("makemigrations", "--check", "--dry-run", verbosity=0)
call_command("migrate", verbosity=0)
from distlock import zk_lock
zk_lock("a")
print("distlock.admin" in sys.modules, "django.contrib.admin.options" in sys.modules)
"""


def test_the_permissions_are_these_three() -> None:
    found = Permission.objects.filter(
        content_type__app_label="distlock", content_type__model="lock"
    )
    names = found.values_list("codename", flat=True)
    assert sorted(names) == ["break_lock", "limit_lock", "revoke_lock", "view_lock"]


def test_there_is_no_table() -> None:
    assert Lock._meta.db_table not in connection.introspection.table_names()


@pytest.mark.parametrize(
    "apps",
    [
        ["distlock"],
        ["django.contrib.contenttypes", "django.contrib.auth", "distlock"],
    ],
    ids=["alone", "with permissions"],
)
def test_a_site_without_an_admin_works_as_before(apps: list[str]) -> None:
    with spawn_python(SITE.format(apps=apps), environment={"DJANGO_SETTINGS_MODULE": ""}) as site:
        out, err = site.communicate(timeout=60)
    assert out.splitlines()[-1:] == ["False False"], err


def test_importing_the_package_imports_no_models() -> None:
    code = "import sys, distlock; print('distlock.models' in sys.modules)"
    with spawn_python(code, environment={"DJANGO_SETTINGS_MODULE": ""}) as process:
        out, err = process.communicate(timeout=60)
    assert out == "False\n", err


@pytest.mark.parametrize("using", ["default", "a:b", "é/"], ids=ascii)
def test_a_lock_is_called_by_its_alias_and_its_name(using: str) -> None:
    lock = Lock.at(using, "stock%2F1:a")
    again = Lock(id=lock.pk)
    assert (again.using, again.name, again.key) == (using, "stock%2F1:a", "stock/1:a")
