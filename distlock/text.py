"""Shows text that others have chosen: on one line, without escapes, not too long; or hides it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: The characters shown of a text that somebody else has chosen.
MAX_SHOWN: Final = 500


def printable(text: str, most: int = MAX_SHOWN) -> str:
    """Return a text without newlines, escapes and bidi marks. A long text loses its middle."""
    text = clipped(text, most)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def clipped(text: str, most: int = MAX_SHOWN) -> str:
    """Return a long text without its middle, since names and messages differ at their ends."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\N{HORIZONTAL ELLIPSIS}{text[-(most // 2) :]}"


def secret(function: Callable[P, R]) -> Callable[P, R]:
    """Hide the variables of a function from error mails, as Django's ``sensitive_variables()``.

    To import that takes as long as all of ``from distlock import zk_lock``: it brings the views,
    the forms and the models. Django knows it by its name on the stack
    (``django.views.debug.SafeExceptionReporterFilter``).
    """

    @wraps(function)
    def sensitive_variables_wrapper(*func_args: P.args, **func_kwargs: P.kwargs) -> R:
        wrapper: Any = sensitive_variables_wrapper
        wrapper.sensitive_variables = "__ALL__"
        return function(*func_args, **func_kwargs)

    return sensitive_variables_wrapper
