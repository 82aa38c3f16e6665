"""The app's own logging: receivers of its signals, as anybody could write them.

The logger is ``distlock``. Its records carry what they tell as fields, for formatters that write
JSON: ``key``, ``using``, ``template``, ``recipe``, ``outcome`` (``lost`` or ``busy``) and, where
known, ``token``, ``waited`` (seconds) and ``path``.
"""

from __future__ import annotations

import logging
from typing import Any

from . import signals

logger = logging.getLogger("distlock")


def connect() -> None:
    """Connect the receivers; may be repeated (runserver calls ``ready`` twice)."""
    signals.lock_lost.connect(_lost, dispatch_uid="distlock.logs.lost")
    signals.lock_contended.connect(_contended, dispatch_uid="distlock.logs.contended")


def _lost(*, key: str, hold: Any, **facts: Any) -> None:
    logger.error(
        "The lock %r (token %d) was lost while held.",
        key,
        hold.token,
        extra=_fields(facts, key=key, outcome="lost", token=hold.token, path=hold.path),
    )


def _contended(*, key: str, waited: float, **facts: Any) -> None:
    logger.info(
        "The lock %r was busy for %.2f s; given up.",
        key,
        waited,
        extra=_fields(facts, key=key, outcome="busy", waited=waited),
    )


def _fields(facts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the fields of a record. It refuses some names, so what a signal may carry one day
    does not get there by itself."""
    said = {name: facts[name] for name in ("using", "template")}
    return {"recipe": facts["sender"].__name__, **said, **more}
