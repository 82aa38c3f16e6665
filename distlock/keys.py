"""``"stock:<sku>"`` → ``"stock:42"`` → one safe znode name.

A lone surrogate from a JSON body kills kazoo's connection thread and with it every lock of the
process, a key of a megabyte makes the shared connection flap, and a slash plants a node that jams
another lock. None of them gets past this file, which runs in the caller's thread.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from .exceptions import LockKeyError

if TYPE_CHECKING:
    import inspect
    from collections.abc import Mapping

#: A longer escaped name is cut and ends in a digest.
MAX_NAME = 200
_KEPT_OF_LONG_NAME = 120
_MARKS_IN_A_ROW = 30
#: Never the outcome of escaping (a percent sign is followed by two hex digits there).
_DIGEST_MARK = "%-"

_SAFE = ":"  # beside the letters, digits and `_.-~` that quote() always keeps
_PLAIN = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MAX_NAME}}}")
_RESERVED = {".": "%2E", "..": "%2E%2E", "zookeeper": "%7Aookeeper"}


def znode_name(key: str) -> str:
    """Return the znode name of `key`: one path component, the same for the same text.

    NFC first, so that two spellings of one word are one lock; then UTF-8, percent-encoded outside
    ``[A-Za-z0-9_.:-]``; over 200 characters the tail becomes a SHA-256 digest.

    :raises LockKeyError: empty, not a string, or not encodable (lone surrogates)
    """
    key = plain_text(key)
    if _PLAIN.fullmatch(key):
        return _RESERVED.get(key, key)
    if len(key) > MAX_NAME:
        _refuse_endless_accents(key)
    try:
        name = quote(unicodedata.normalize("NFC", key), safe=_SAFE).replace("~", "%7E")
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
    """Return the text of `key` as an exact ``str``: that of a text enum is its value.

    Formatting a ``class Key(str, Enum)`` gives its name from Python 3.11 on, and so another lock.

    :raises LockKeyError: empty, or not a string
    """
    if not isinstance(key, str):
        raise LockKeyError(f"A lock key is a string, not {type(key).__name__}: {key!r:.80}.")
    if not key:
        raise LockKeyError("A lock key must not be empty. Name what is locked: 'stock:42'.")
    return str.__str__(key)


def _refuse_endless_accents(key: str) -> None:
    """Refuse what would keep `unicodedata.normalize` busy for hours: it is quadratic in a run of
    combining marks. No text has more than 30 in a row (UAX 15, stream-safe format)."""
    run = 0
    for character in key:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > _MARKS_IN_A_ROW:
            raise LockKeyError(
                f"The lock key {key[:20]!a}… has more than {_MARKS_IN_A_ROW} combining marks in a "
                "row, which is no text. Reject such input before it becomes a key."
            )


def key_of(name: str) -> str | None:
    """Return the key (in NFC) of a znode name, or None where a digest has replaced its tail."""
    return None if _DIGEST_MARK in name else unquote(name, errors="replace")


class KeyTemplate:
    """A key with holes: ``<name>`` is an argument of the call, ``<order.pk>`` follows attributes.

    :raises LockKeyError: at once, when the template itself is malformed
    """

    def __init__(self, text: str) -> None:
        if not text or not isinstance(text, str):
            raise LockKeyError(f"A lock key template is a string such as 'stock:<sku>': {text!r}.")
        self.text = text = plain_text(text)
        # Literal, field, literal, field, …, literal
        self._parts = re.split(r"<([^<>]*)>", text)
        self._fields = [field.split(".") for field in self._parts[1::2]]
        literals = "".join(self._parts[::2])
        if "<" in literals or ">" in literals:
            raise LockKeyError(f"Unbalanced '<' or '>' in the lock key template {text!r}.")
        for name, *attributes in self._fields:
            if not name.isidentifier() or not all(
                attribute.isidentifier() and not attribute.startswith("_")
                for attribute in attributes
            ):
                raise LockKeyError(
                    f"<{'.'.join([name, *attributes])}> in the lock key template {text!r} is not "
                    "an argument's name followed by public attributes, such as <order.pk>."
                )

    def missing_from(self, signature: inspect.Signature) -> list[str]:
        """Return the argument names in the template that a call with `signature` cannot have."""
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
            return self.text
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                values |= {
                    k: v for k, v in values.pop(parameter.name, {}).items() if k not in values
                }
        return self.fill(values)

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the key with the holes filled from `values`."""
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
        if value is None or callable(value):
            raise LockKeyError(
                f"<{field}> in the lock key {self.text!r} is {value!r:.80}, which names nothing; "
                "everything without a value would share one lock."
            )
        if hasattr(value, "_meta") and hasattr(value, "pk"):
            raise LockKeyError(
                f"<{field}> in the lock key {self.text!r} is a model instance, whose text may "
                f"change. Use <{field}.pk>."
            )
        kind: Any = type(value)
        if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
            raise LockKeyError(
                f"<{field}> in the lock key {self.text!r} is a {kind.__qualname__}, whose "
                f"text is its address in memory. Name one of its attributes: <{field}.id>."
            )
        text = str.__str__(value) if isinstance(value, str) else str(value)
        if not text.strip():
            raise LockKeyError(
                f"<{field}> in the lock key {self.text!r} is empty; everything without a value "
                "would share one lock."
            )
        return text
