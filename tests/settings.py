"""The settings under which the package's own tests run."""

from __future__ import annotations

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
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DISTLOCK = {"default": {"HOSTS": "127.0.0.1:2181"}}
