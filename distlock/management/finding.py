"""Defines the result of one of the doctor's checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    :ivar level: ``ok``; ``warning``, it works and could be better; ``error``, locks do not work
    :ivar subject: the subject of the check, in a word
    :ivar message: the result
    :ivar advice: the remedy, empty without a problem
    """

    level: Level
    subject: str
    message: str
    advice: str = ""


def ok(subject: str, message: str) -> Finding:
    return Finding(level="ok", subject=subject, message=message)


def warning(subject: str, message: str, advice: str) -> Finding:
    return Finding(level="warning", subject=subject, message=message, advice=advice)


def failure(subject: str, message: str, advice: str) -> Finding:
    return Finding(level="error", subject=subject, message=message, advice=advice)
