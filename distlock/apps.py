"""The app. Importing and starting it never connects."""

from __future__ import annotations

import sys

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class DistlockConfig(AppConfig):
    """Registers the system checks and the logging of lost and contended locks."""

    name = "distlock"
    verbose_name = _("Distributed locks")

    def ready(self) -> None:
        from . import checks, history, logs  # noqa: PLC0415 - they need the app registry

        checks.register()
        logs.connect()
        if apps.is_installed("django.contrib.admin"):  # whose page shows it
            history.connect()
        if "celery" in sys.modules:  # for a site that has it
            from . import celery  # noqa: F401, PLC0415 - it connects to Celery's signals
