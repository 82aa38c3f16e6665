"""The settings of PostgreSQL: mistakes are found without a server."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from distlock.conf import configuration
from distlock.engine.postgresql import settings as postgresql_settings
from tests.checks.tools import found, messages

BACKENDS = "django.db.backends"


@pytest.fixture(autouse=True)
def _databases(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of each kind; only the setting of the locks has something to say."""
    settings.MIDDLEWARE = ["distlock.middleware.DistlockMiddleware"]
    engines = {"shop": f"{BACKENDS}.postgresql", "gis": "django.contrib.gis.db.backends.postgis"}
    engines |= {"small": f"{BACKENDS}.sqlite3", "other": f"{BACKENDS}.mysql"}
    for alias, engine in engines.items():
        options = {"ENGINE": engine, "ATOMIC_REQUESTS": False}
        monkeypatch.setitem(settings.DATABASES, alias, options)


@pytest.mark.parametrize("alias", ["shop", "gis"])
def test_an_alias_of_postgresql_is_accepted(alias: str, settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": f"database:{alias}"}}
    assert configuration().hosts == f"database:{alias}"
    assert found(deploy=True) == []


@pytest.mark.parametrize(
    ("alias", "mistake"),
    [
        ("locks", "names the database 'locks', which is not in DATABASES"),
        ("", "names the database '', which is not in DATABASES"),
        ("other", f"whose engine is {BACKENDS}.mysql: locks need PostgreSQL"),
    ],
)
def test_a_mistake_is_named(alias: str, mistake: str, settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": f"database:{alias}"}}
    (said,) = messages()
    assert said.id == "distlock.E002"
    assert mistake in said.msg
    assert '"database:default"' in (said.hint or "")
    with pytest.raises(ImproperlyConfigured):
        configuration()


def test_psycopg_is_needed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": "database:shop"}}
    monkeypatch.setattr(postgresql_settings, "find_spec", lambda _: None)
    (said,) = messages()
    assert (said.id, said.hint) == ("distlock.E002", "Install django-distlock[postgresql].")


@pytest.mark.parametrize(
    ("option", "value", "advice"),
    [
        ("AUTH", [("digest", "user:password")], "in DATABASES"),
        ("ACL", "creator", "GRANT and REVOKE"),
        ("TLS", {}, "sslmode"),
        ("STRICT", True, "proves each session"),
        ("REPLICAS", 2, "synchronous_standby_names"),
    ],
)
def test_what_the_server_does_not_know_is_refused(
    option: str, value: Any, advice: str, settings: Settings
) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": "database:shop", option: value}}
    (said,) = messages()
    assert said.msg == f"DISTLOCK['default'][{option!r}] means nothing to PostgreSQL."
    assert advice in (said.hint or "")


def test_sqlite_has_the_embedded_server_for_development_only(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": "database:small"}}
    assert configuration().hosts == "embedded"
    assert found() == []  # tests run without DEBUG
    monkeypatch.delattr("django.test.utils._TestState.saved_data")
    (said,) = messages()
    assert said.id == "distlock.E007"
    assert "'database:small', and DEBUG is False" in said.msg
    assert "on PostgreSQL" in (said.hint or "")
