"""Turns ``"stock:<sku>"`` into ``"stock:42"``, and that into one safe znode name.

It refuses or escapes, in the caller's thread, what would harm the process or another lock: a lone
surrogate, a key of a megabyte, a slash.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import unicodedata
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from types import NoneType
from typing import Any, Final
from urllib.parse import quote, unquote

from django.utils.functional import Promise

from distlock.exceptions import LockKeyError

#: The characters of a key or value that a message shows.
LONGEST_SHOWN: Final = 200
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]")

#: The longest escaped name. A longer one is cut and ends in a digest.
MAX_NAME = 200
_KEPT_OF_LONG_NAME = 120
_MARKS_IN_A_ROW = 30
#: Escaping never yields this: there, two hex digits follow a percent sign.
_DIGEST_MARK = "%-"

_SAFE = ":"  # beside the letters, digits and `_.-~` that quote() always keeps
_PLAIN = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MAX_NAME}}}")
_RESERVED = {".": "%2E", "..": "%2E%2E", "zookeeper": "%7Aookeeper"}

#: A placeholder: ``<sku>``, or ``{order.pk:05d}`` as in an f-string. Doubled brackets escape it.
_PLACEHOLDER = re.compile(
    r"(?<!<)(<+)([^\W\d][\w.:]*)(>+)"
    r"|(?<!\{)(\{+)([^\W\d][\w.]*)((?:[\[(!:][^{}\s]*)?)(\}+)"
)
_FIELD = re.compile(r"(?<!<)<([^<>]*)>(?!>)")
#: These cannot separate two values: the escape itself, and what a combining mark changes (≮ ≠ ≯).
_NO_SEPARATOR = "%<=>"


def znode_name(key: str) -> str:
    """Return the znode name of `key`: one path component, the same for the same text.

    NFC first, so that two spellings of one word are one lock; then UTF-8, percent-encoded outside
    ``[A-Za-z0-9_.:-]``; over 200 characters the tail becomes a SHA-256 digest.

    :raises LockKeyError: empty, not a string, or not encodable (lone surrogates)
    """
    key = plain_text(key)
    if _PLAIN.fullmatch(key):
        return _RESERVED.get(key, key)
    try:
        name = quote(_nfc(key), safe=_SAFE).replace("~", "%7E")
    except UnicodeEncodeError as error:
        raise LockKeyError(
            f"The lock key {key!a:.80} is not valid Unicode text ({error.reason} at index "
            f"{error.start}). Reject such input before it becomes a key."
        ) from None
    if len(name) > MAX_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()
        # Cut before an escape, not within one.
        name = re.sub(r"%.?$", "", name[:_KEPT_OF_LONG_NAME]) + _DIGEST_MARK + digest
    return name


def plain_text(key: str) -> str:
    """Return the text of `key` as an exact ``str``; for a text enum, its value.

    From Python 3.11 on, formatting a ``class Key(str, Enum)`` gives its name, and so another lock.

    :raises LockKeyError: empty, or not a string
    """
    if not isinstance(key, str):
        raise LockKeyError(f"A lock key is a string, not {type(key).__name__}: {key!r:.80}.")
    if not key:
        raise LockKeyError("A lock key must not be empty. Name the thing to lock: 'stock:42'.")
    return str.__str__(key)


def _nfc(text: str) -> str:
    """Return text in NFC; refuse what would keep `unicodedata.normalize` busy for hours.

    It is quadratic in a run of combining marks. No text has more than 30 in a row (UAX 15,
    stream-safe format).
    """
    if len(text) > MAX_NAME:
        marks = "".join("+" if unicodedata.combining(one) else " " for one in text)
        if "+" * (_MARKS_IN_A_ROW + 1) in marks:
            raise LockKeyError(
                f"The lock key {text[:20]!a}… has more than {_MARKS_IN_A_ROW} combining marks in a "
                "row, which is no text. Reject such input before it becomes a key."
            )
    return unicodedata.normalize("NFC", text)


def key_of(name: str) -> str | None:
    """Return the key (in NFC) of a znode name, or None if a digest replaces its tail."""
    return None if _DIGEST_MARK in name else unquote(name, errors="replace")


def literal_key(key: str) -> str:
    """Return a key without placeholders, with doubled brackets made single.

    ``zk_lock("stock:<sku>")`` and ``zk_lock("stock:{sku}")`` lack the value and the ``f``, and
    would lock the whole shop. ``<<sku>>`` and ``{{sku}}`` stand for the brackets themselves.

    :raises LockKeyError: `key` has a placeholder
    """
    if type(key) is str and "<" not in key and "{" not in key:
        return key
    key = plain_text(key)
    for found in _PLACEHOLDER.finditer(key):
        if not _is_escaped(found):
            raise LockKeyError(
                f"The lock key {key[:LONGEST_SHOWN]!a} has a placeholder that is not filled in, "
                f"{found[0][:80]!a}: all values would share one lock. Give its value, as in "
                "zk_lock('stock:<sku>', sku=sku), by a name that is no option of the lock; or "
                "write an f-string such as f'stock:{sku}'; or escape_key(key), if you mean the "
                "brackets."
            )
    return _PLACEHOLDER.sub(lambda found: found[0][1:-1], key)


def filled(text: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key of a template with these values, and the template; else a literal key, and "".

    :raises LockKeyError: as `KeyTemplate` and `literal_key` do
    :raises TypeError: the template has no such placeholder, as where an option is misspelt
    """
    if not values:
        return literal_key(text), ""
    template = _parsed(text)
    for name in values:
        if name not in template.names:
            raise TypeError(
                f"{name!r} is neither an option of the lock nor a placeholder of its key {text!r}."
            )
    return template.fill(values), template.text


def escape_key(key: str) -> str:
    """Return `key` with doubled brackets, so that a lock takes it literally.

    ::

        zk_lock(escape_key(f"page:{title}"))

    Use it on the whole key if a part comes from users: a title such as ``<b>`` looks like a
    placeholder, which raises `LockKeyError`.
    """
    return _PLACEHOLDER.sub(
        lambda found: (found[1] or found[4])[0] + found[0] + (found[3] or found[7])[0], key
    )


def _is_escaped(found: re.Match[str]) -> bool:
    return len(found[1] or found[4]) > 1 and len(found[3] or found[7]) > 1


class KeyTemplate:
    """A key with placeholders: ``<name>`` is an argument of the call, ``<order.pk>`` follows
    attributes. ``<<name>>`` and ``{{name}}`` are literal brackets.

    Two calls share a key only if the texts of their values are equal: with several placeholders,
    the punctuation between them is percent-encoded within the values.

    :raises LockKeyError: the template is malformed
    """

    def __init__(self, text: str) -> None:
        if not text or not isinstance(text, str):
            raise LockKeyError(
                f"A lock key template is a string, not {text!r:.80}: write "
                "@zk_locked('stock:<sku>')."
            )
        self.text = text = plain_text(text)
        # Literal, field, literal, field, …, literal
        self._parts = _FIELD.split(text)
        self._fields = [field.split(".") for field in self._parts[1::2]]
        #: The names of the arguments that it needs.
        self.names = {name for name, *_ in self._fields}
        self._parts[::2] = map(self._literal, self._parts[::2])
        self._separators = self._find_separators()
        for name, *attributes in self._fields:
            if not name.isidentifier() or not all(
                attribute.isidentifier() and not attribute.startswith("_")
                for attribute in attributes
            ):
                raise LockKeyError(
                    f"<{'.'.join([name, *attributes])}> in the lock key template {text!r} is not "
                    "an argument's name followed by public attributes, such as <order.pk>."
                )

    def _literal(self, part: str) -> str:
        """Return the text of a part between placeholders."""
        if re.search("[<>]", _PLACEHOLDER.sub("", part)):
            raise LockKeyError(f"Unbalanced '<' or '>' in the lock key template {self.text!r}.")
        if not all(map(_is_escaped, _PLACEHOLDER.finditer(part))):
            raise LockKeyError(
                f"The lock key template {self.text!r} has a placeholder that is not filled in: all "
                "calls would share one lock. Write <name> for an argument of the call, or double "
                "the brackets if you mean them."
            )
        return literal_key(part)

    def _find_separators(self) -> re.Pattern[str] | None:
        """Return the pattern to encode within values, None for fewer than two values."""
        found = ""
        for index in range(2, len(self._parts) - 1, 2):
            between = "".join(
                c for c in self._parts[index] if 33 <= ord(c) < 127 and not c.isalnum()
            ).translate(dict.fromkeys(map(ord, _NO_SEPARATOR)))
            if not between:
                one, other = self._parts[index - 1], self._parts[index + 1]
                raise LockKeyError(
                    f"Nothing separates <{one}> from <{other}> in the lock key template "
                    f"{self.text!r}, so different values could share one lock. Put a punctuation "
                    f"mark between them: '<{one}>:<{other}>'."
                )
            found += between
        return re.compile(f"[%{re.escape(found)}]") if found else None

    def missing_from(self, signature: inspect.Signature) -> list[str]:
        """Return the template's argument names that `signature` lacks."""
        parameters = signature.parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return []
        known = {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL}
        return [name for name, *_ in self._fields if name not in known]

    def bind(
        self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """Return the key for one call.

        :raises TypeError: the arguments do not fit the signature, as the call itself would raise
        :raises LockKeyError: an argument is missing, None or empty
        """
        if not self._fields:
            return self._parts[0]
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                values = values.pop(name) | values
        return self.fill(values)

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the key with the placeholders filled from `values`."""
        parts = list(self._parts)
        for index, (name, *attributes) in enumerate(self._fields):
            parts[2 * index + 1] = self._text_of(name, attributes, values)
        return "".join(parts)

    def _text_of(self, name: str, attributes: list[str], values: Mapping[str, Any]) -> str:
        field = ".".join([name, *attributes])
        if name not in values:
            raise LockKeyError(
                f"The lock key {self.text!r} needs an argument {name!r}, and the call has only: "
                f"{', '.join(map(repr, values)) or 'none'}."
            )
        value = values[name]
        for attribute in attributes:
            try:
                value = getattr(value, attribute)
            except AttributeError as error:
                raise LockKeyError(f"<{field}> in the lock key {self.text!r}: {error}.") from error
        try:
            text = text_of(value, field)
        except LockKeyError as error:
            raise LockKeyError(f"<{field}> in the lock key {self.text!r} {error}") from None
        if self._separators is not None:
            text = self._separators.sub(lambda found: f"%{ord(found[0]):02X}", _nfc(text))
        return text


#: Templates of blocks, which are parsed at each call.
_parsed = lru_cache(maxsize=1024)(KeyTemplate)


def text_of(value: Any, field: str) -> str:
    """Return the text of `value`, which fills ``<field>``, the same in every process.

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
