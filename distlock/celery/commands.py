"""`celery -A proj distlock <subcommand>`: `manage.py distlock` with the Celery app of ``-A``.

Each `celery` command loads this module, by the entry point ``celery.commands``.
"""

from __future__ import annotations

import os
from typing import Any

import click
import django
from django.apps import apps
from django.conf import settings
from django.core.management import ManagementUtility


@click.command(
    "distlock",
    help="Distributed locks: look at them, act on them; `distlock --help` lists the subcommands.",
    add_help_option=False,  # Django's parser has one
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def distlock(ctx: click.Context, /, arguments: tuple[str, ...], **_: Any) -> None:
    if not (settings.configured or os.environ.get("DJANGO_SETTINGS_MODULE")):
        raise click.UsageError(
            "Django has no settings here. Set DJANGO_SETTINGS_MODULE, or let the module of the "
            'Celery app do it: os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings").'
        )
    django.setup()
    if not apps.is_installed("distlock"):
        raise click.UsageError('"distlock" is not in INSTALLED_APPS. Add it.')
    ctx.obj.app.set_current()
    ManagementUtility(["celery", "distlock", *arguments]).execute()
