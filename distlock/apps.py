"""Starts the app. Neither the import nor the start connects."""

from __future__ import annotations

import sys
from typing import Any

from django.apps import AppConfig
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.utils.translation import gettext_lazy as _


class DistlockConfig(AppConfig):
    """Registers the checks, the log and the history of locks, and SIGTERM in commands."""

    name = "distlock"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = _("Distributed locks")

    def ready(self) -> None:
        # These need the app registry.
        from . import checks, history  # noqa: PLC0415
        from .engine import hosts  # noqa: PLC0415
        from .logs import receivers as logs  # noqa: PLC0415
        from .session import termination  # noqa: PLC0415

        checks.register()
        hosts.load()
        logs.connect()
        termination.release_in_commands()
        history.connect()
        connection_created.connect(_leave_test_database)
        if "celery" in sys.modules:  # for a site that has it
            from .celery import receivers  # noqa: F401, PLC0415 - it connects to Celery's signals


def _leave_test_database(connection: Any, **_: Any) -> None:
    """Close the sessions before Django removes or copies a test database.

    A session with its locks in there would keep Django from it. For that, and to make one, Django
    connects to no database (``BaseDatabaseCreation._nodb_cursor``).
    """
    if connection.alias == NO_DB_ALIAS:
        from .session.registry import close_sessions  # noqa: PLC0415 - most sites have no use for it

        close_sessions()
