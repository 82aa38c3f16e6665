"""What `manage.py check` says of this package."""

from __future__ import annotations

from django.core import checks


def found(*, deploy: bool = False) -> list[str | None]:
    """The ids of what `manage.py check` says of this package."""
    return [message.id for message in messages(deploy=deploy)]


def messages(*, deploy: bool = False, tags: list[str] | None = None) -> list[checks.CheckMessage]:
    said = checks.run_checks(tags=tags, include_deployment_checks=deploy)
    return [message for message in said if str(message.id).startswith("distlock")]
