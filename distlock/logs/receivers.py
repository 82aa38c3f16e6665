"""Logs the app's signals, with receivers that anybody could write.

The logger is ``distlock``. Its records carry their facts as fields, for formatters that write JSON:
``key``, ``using``, ``template``, ``recipe``, ``outcome`` (``lost``, ``at risk``, ``safe``, ``busy``
or ``bypassed``) and, if known, ``token``, ``waited`` (seconds), ``path`` and ``reason`` (of a
loss).
"""

from __future__ import annotations

from typing import Any

from distlock import signals
from distlock.text import printable

from .loggers import logger


def connect() -> None:
    """Connect the receivers. Any number of calls are fine: runserver calls ``ready`` twice."""
    signals.lock_lost.connect(_lost, dispatch_uid="distlock.logs.lost")
    signals.lock_at_risk.connect(_at_risk, dispatch_uid="distlock.logs.at_risk")
    signals.lock_safe.connect(_safe, dispatch_uid="distlock.logs.safe")
    signals.lock_contended.connect(_contended, dispatch_uid="distlock.logs.contended")
    signals.lock_bypassed.connect(_bypassed, dispatch_uid="distlock.logs.bypassed")


def _lost(*, key: str, hold: Any, reason: str, **facts: Any) -> None:
    logger.error(
        "The lock %r (token %d) was given up after its max_hold."
        if reason == "max_hold"
        else "The lock %r (token %d) was lost while held.",
        key,
        hold.token,
        extra=_fields(facts, key, "lost", hold, reason=reason),
    )


def _at_risk(*, key: str, hold: Any, **facts: Any) -> None:
    logger.info(
        "The lock %r (token %d) is at risk: the connection is gone. It is lost in %.1f s.",
        key,
        hold.token,
        hold.valid_for(),
        extra=_fields(facts, key, "at risk", hold),
    )


def _safe(*, key: str, hold: Any, **facts: Any) -> None:
    extra = _fields(facts, key, "safe", hold)
    logger.info("The lock %r (token %d) is safe again.", key, hold.token, extra=extra)


def _contended(*, key: str, waited: float, **facts: Any) -> None:
    extra = _fields(facts, key, "busy", waited=waited)
    logger.info("The lock %r was busy for %.2f s; given up.", key, waited, extra=extra)


def _bypassed(*, key: str, error: Exception, **facts: Any) -> None:
    extra = _fields(facts, key, "bypassed")
    logger.warning("A block of the lock %r goes on without it: %s", key, error, extra=extra)


def _fields(
    facts: dict[str, Any], key: str, outcome: str, hold: Any = None, **more: Any
) -> dict[str, Any]:
    fields = {name: facts[name] for name in ("using", "template")}
    fields |= {"recipe": facts["sender"].__name__, "key": key, "outcome": outcome, **more}
    if hold:
        fields |= {"token": hold.token, "path": hold.path}
    return {k: printable(v) if isinstance(v, str) else v for k, v in fields.items()}
