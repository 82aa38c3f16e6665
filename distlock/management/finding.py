"""Defines the result of one of the doctor's checks."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal, NamedTuple


class Finding(NamedTuple):
    """The result of one check.

    :ivar level: ``ok``; ``warning``, it works and could be better; ``error``, locks do not work
    :ivar subject: the subject of the check, in a word
    :ivar message: the result
    :ivar advice: the remedy, empty without a problem
    """

    level: Literal["ok", "warning", "error"]
    subject: str
    message: str
    advice: str = ""


ok: Final = partial(Finding, "ok")
warning: Final = partial(Finding, "warning")
failure: Final = partial(Finding, "error")
