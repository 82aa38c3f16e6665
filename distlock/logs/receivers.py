"""Logs the app's signals, with receivers that anybody could write.

The logger is ``distlock``. Its records carry their facts as fields, for formatters that write JSON:
``key``, ``using``, ``template``, ``recipe``, ``outcome`` (``lost``, ``at risk``, ``safe``, ``held
long``, ``waited long``, ``busy`` or ``bypassed``) and, if known, ``token``, ``waited`` and
``held_for`` (seconds), ``waiting``, ``who``, ``path`` and ``reason`` (of a loss).
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
    signals.lock_held_long.connect(_held_long, dispatch_uid="distlock.logs.held_long")
    signals.lock_waited_long.connect(_waited_long, dispatch_uid="distlock.logs.waited_long")
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


def _held_long(
    *, key: str, hold: Any, held_for: float, waiting: int | None, who: str, **facts: Any
) -> None:
    more = {"held_for": held_for, "waiting": waiting, "who": who}
    log = logger.info if waiting == 0 else logger.warning
    log(
        "The lock %r (token %d) has been held for %.0f s by %s; waiting: %s.",
        key,
        hold.token,
        held_for,
        who,
        "unknown" if waiting is None else waiting,
        extra=_fields(facts, key, "held long", hold, **more),
    )


def _waited_long(*, key: str, waited: float, who: str, **facts: Any) -> None:
    extra = _fields(facts, key, "waited long", waited=waited, who=who)
    logger.warning("%s has waited for the lock %r for %.0f s.", who, key, waited, extra=extra)


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
