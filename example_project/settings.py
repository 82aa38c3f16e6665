"""Settings of the example shop: SQLite and loopback by default, the rest from the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from celery.schedules import crontab

BASE_DIR = Path(__file__).resolve().parent

# The example answers on loopback only (see ALLOWED_HOSTS); a real site brings its own key.
SECRET_KEY = os.environ.get("SECRET_KEY", "an-example-key-that-protects-nothing")
DEBUG = os.environ.get("DEBUG", "1") == "1"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]

INSTALLED_APPS = [
    "distlock",
    "distlock_chaos",
    "example_project.shop",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]

MIDDLEWARE = [
    "distlock.middleware.DistlockMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "example_project.middleware.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

DISTLOCK: dict[str, dict[str, Any]] = {
    "default": {
        "HOSTS": os.environ.get("DISTLOCK_HOSTS", "127.0.0.1:2181"),
        "NAMESPACE": "/example-shop",
        # Short, so that a killed worker's lock is free after about four seconds.
        "SESSION_TIMEOUT": 4,
        # A request's node names its path, which has the buyer's ticket: so a page finds its place
        # in the line.
        "LABEL": "path",
        # The last events of all processes, for the admin: each hold of half a second or longer.
        "HISTORY": 10_000,
        "HISTORY_SLOW": 0.5,
    }
}
# The strategy `redis`, for comparison: `manage.py sale` starts a server where none is named.
if REDIS := os.environ.get("DISTLOCK_REDIS"):
    DISTLOCK["redis"] = DISTLOCK["default"] | {"HOSTS": REDIS}

# How long a buyer's request waits for the lock of a product before it is answered with 423.
LOCK_SECONDS = float(os.environ.get("LOCK_SECONDS", "2"))
# How long the payment provider takes: the window in which an unprotected shop oversells.
PAYMENT_SECONDS = float(os.environ.get("PAYMENT_SECONDS", "0.1"))
# How long a piece is kept for a buyer who does not pay.
RESERVED_SECONDS = float(os.environ.get("RESERVED_SECONDS", "900"))

# Only the tasks need it:
# celery -A example_project.celery worker -B --scheduler distlock.celery.beat:LeaderScheduler
CELERY_BROKER_URL = CELERY_RESULT_BACKEND = os.environ.get("BROKER_URL", "redis://127.0.0.1:6379/0")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULE = {
    "expire-reservations": {
        "task": "example_project.shop.tasks.expire_reservations",
        "schedule": 60,
    },
    "nightly-report": {
        "task": "example_project.shop.tasks.nightly_report",
        "schedule": crontab("0", "3"),
    },
}


def database(url: str) -> dict[str, Any]:
    """Settings of one database from `sqlite:////a/path` or `postgresql://user:password@host:port/name`."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": unquote(parts.path.removeprefix("/")),
            "OPTIONS": {
                # WAL lets readers go on beside a writer. IMMEDIATE takes the write lock at BEGIN,
                # where SQLite can wait for it; upgrading a read lock later fails at once with
                # "database is locked".
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
            },
        }
    if parts.scheme in ("postgres", "postgresql"):
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path.removeprefix("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(parts.hostname or ""),
            "PORT": str(parts.port or ""),
        }
    raise ValueError(f"DATABASE_URL begins with {parts.scheme!r}; use sqlite:// or postgresql://")


DATABASES = {
    "default": database(os.environ.get("DATABASE_URL") or f"sqlite:///{BASE_DIR / 'db.sqlite3'}")
}
# The strategy `postgresql`, for comparison: as with Redis.
if POSTGRESQL := os.environ.get("DISTLOCK_POSTGRESQL"):
    DATABASES["locks"] = database(POSTGRESQL)
    DISTLOCK["postgresql"] = DISTLOCK["default"] | {"HOSTS": "database:locks"}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
STATIC_URL = "static/"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before those of the apps: distlock's page for refused requests in the shop's own clothes.
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "Simplified Chinese")]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True
