"""Starts the app. Neither the import nor the start connects."""

from __future__ import annotations

import sys

from django.apps import AppConfig
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
        if "celery" in sys.modules:  # for a site that has it
            from .celery import receivers  # noqa: F401, PLC0415 - it connects to Celery's signals
