"""Starts the app. Neither the import nor the start connects."""

from __future__ import annotations

import sys

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class DistlockConfig(AppConfig):
    """Registers the system checks, the logging of locks, and SIGTERM in management commands."""

    name = "distlock"
    verbose_name = _("Distributed locks")

    def ready(self) -> None:
        # These need the app registry.
        from . import checks  # noqa: PLC0415
        from .logs import receivers as logs  # noqa: PLC0415
        from .session import termination  # noqa: PLC0415

        checks.register()
        logs.connect()
        termination.release_in_commands()
        if apps.is_installed("django.contrib.admin"):
            from .admin import history  # noqa: PLC0415

            history.connect()
        if "celery" in sys.modules:  # for a site that has it
            from .celery import receivers  # noqa: F401, PLC0415 - it connects to Celery's signals
