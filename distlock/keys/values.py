"""Writes a value as text for a lock key, the same in every process, or refuses it."""

from __future__ import annotations

import math
import re
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final

from django.utils.functional import Promise

from distlock.exceptions import LockKeyError

#: The characters of a key or value that a message shows.
LONGEST_SHOWN: Final = 200

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]")


def text_of(value: Any, field: str) -> str:
    """Return the text of `value`, which fills ``<field>``.

    Lists and tuples have the same text, since JSON turns a task's tuples into lists. A dict is
    written in the order of its keys, a datetime with a time zone in UTC.

    :raises LockKeyError: `value` is empty, or has another text in another process; the message
        continues a sentence that begins with the field
    """
    if type(value) is int:
        return str(value)
    text = value if type(value) is str else _text_of_object(value, field)
    if not text or text.isspace():
        raise LockKeyError("is empty; everything without a value would share one lock.")
    return text


def _text_of_object(value: Any, field: str) -> str:
    kind: Any = value.__class__  # of a lazy object, the class of what it wraps
    if isinstance(value, list | tuple | dict):
        return _text_of_container(value, field) if value else ""
    _refuse_what_is_no_name(value, kind, field)
    if isinstance(value, datetime) and value.utcoffset() is not None:
        value = value.astimezone(timezone.utc)
    if isinstance(value, Enum) and isinstance(value, int):  # its text depends on Python's version
        value = value.value
    text = str.__str__(value) if isinstance(value, str) else str(value)
    if not isinstance(value, str) and _ADDRESS.search(text):
        raise LockKeyError(
            f"is a {kind.__qualname__}, whose text has an address in memory. Name one of its "
            f"attributes, such as <{field}.id>."
        )
    return text


def _text_of_container(value: Any, field: str) -> str:
    if isinstance(value, dict):
        pairs = value.lists() if hasattr(value, "lists") else value.items()  # a QueryDict has lists
        items = sorted((_text_of_item(k, field), _text_of_item(v, field)) for k, v in pairs)
        return f"{{{', '.join(map(': '.join, items))}}}"
    return f"[{', '.join(_text_of_item(item, field) for item in value)}]"


def _text_of_item(item: Any, field: str) -> str:
    """Return the text of an item of a list or dict, quoted so that two never look like one."""
    if item is None or isinstance(item, bool):
        return repr(item)
    if isinstance(item, list | tuple | dict):
        return _text_of_container(item, field)
    text = item if type(item) is str else _text_of_object(item, field)
    return text if isinstance(item, int | float) else repr(text)


def _refuse_what_is_no_name(value: Any, kind: Any, field: str) -> None:
    if kind is NoneType or callable(value):
        raise LockKeyError(
            f"is {value!r:.80}, which names nothing; everything without a value would share one "
            "lock."
        )
    if (isinstance(value, float) and not math.isfinite(value)) or (
        isinstance(value, Decimal) and not value.is_finite()
    ):
        raise LockKeyError(f"is {value}, which is no number and names nothing.")
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        raise LockKeyError(f"is a model instance, whose text may change. Use <{field}.pk>.")
    if isinstance(value, AbstractSet):
        raise LockKeyError(
            f"is a {kind.__qualname__}, whose order differs from process to process. Use a sorted "
            "list."
        )
    if isinstance(value, bytes | bytearray | memoryview):
        raise LockKeyError(f"is {kind.__qualname__}, and a key is text. Decode it first.")
    if isinstance(value, Promise):
        raise LockKeyError(
            "is a lazy translation, whose text depends on the active language. Use the original."
        )
    if kind.__str__ is object.__str__ and not isinstance(value, int | float):
        raise LockKeyError(
            f"is a {kind.__qualname__}, whose text is made for debugging and may differ from "
            f"process to process. Name one of its attributes, such as <{field}.id>, or give its "
            "class a __str__()."
        )
