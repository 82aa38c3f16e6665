"""The settings under which the package's own tests run."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit


def database_at(url: str) -> dict[str, Any]:
    """Return the settings of a PostgreSQL database."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.removeprefix("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }


class Databases(dict[str, Any]):
    """Knows the databases of the tests' own servers by their URLs, in each process."""

    def __contains__(self, alias: object) -> bool:
        return super().__contains__(alias) or str(alias).startswith("postgresql://")

    def __missing__(self, url: str) -> dict[str, Any]:
        usual: dict[str, Any] = {
            "OPTIONS": {},
            "TIME_ZONE": None,
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": False,
        }
        return {**database_at(url), **usual, "AUTOCOMMIT": True, "ATOMIC_REQUESTS": False}


SECRET_KEY = "tests"
USE_TZ = True
INSTALLED_APPS = [
    "distlock",
    "distlock_chaos",
    # For tests/example_project, whose conftest.py sets up the rest of the site.
    "example_project.shop",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
LOCK_SECONDS = 2.0
PAYMENT_SECONDS = 0.0
RESERVED_SECONDS = 900.0
DATABASES = Databases(default={"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"})
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DISTLOCK = {"default": {"HOSTS": "127.0.0.1:2181"}}
