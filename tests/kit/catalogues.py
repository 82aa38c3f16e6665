"""What is translated and how, read without gettext's tools: sources, and ``.po`` files."""

from __future__ import annotations

import ast
import gettext
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from django.utils.translation.template import templatize

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Text(NamedTuple):
    """What a translation is looked up by."""

    context: str | None
    text: str
    plural: str | None


# function → which of its arguments are the context, the text and the plural
_FUNCTIONS = {
    "_": (None, 0, None),
    "gettext": (None, 0, None),
    "ngettext": (None, 0, 1),
    "pgettext": (0, 1, None),
    "npgettext": (0, 1, 2),
}


def texts_of_python(source: str) -> Iterator[Text]:
    """Return what a module marks to be translated."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from _marked(node, node.func.id)


def texts_of_template(source: str) -> Iterator[Text]:
    """Return what a template marks to be translated."""
    calls = templatize(source)
    for found in re.finditer(rf"(?<!\w)({'|'.join(_FUNCTIONS)})\(", calls):
        yield from _marked(_call(calls[found.start() :]), found[1])


def _call(text: str) -> ast.Call:
    """Return the call at the beginning of a text."""
    for end in (found.end() for found in re.finditer(r"\)", text)):
        try:
            call = ast.parse(text[:end], mode="eval").body
        except SyntaxError:
            continue
        assert isinstance(call, ast.Call)
        return call
    raise AssertionError(f"no call in {text[:200]}")


def _marked(call: ast.Call, function: str) -> Iterator[Text]:
    name = function.removesuffix("_lazy").removesuffix("_noop")
    if name not in _FUNCTIONS:
        return
    context, text, plural = _FUNCTIONS[name]

    def argument(place: int | None) -> Any:
        return None if place is None else ast.literal_eval(call.args[place])

    yield Text(argument(context), argument(text), argument(plural))


def read_po(path: Path) -> dict[Text, list[str]]:
    """Return the translations of a ``.po`` file, without its header."""
    found = {}
    for entry in path.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in entry.splitlines():
            if not line.startswith("#"):
                field, _, quoted = line.partition('"')
                name = field.strip() or name
                fields[name] = fields.get(name, "") + ast.literal_eval(f'"{quoted}')
        if fields["msgid"]:
            text = Text(fields.get("msgctxt"), fields["msgid"], fields.get("msgid_plural"))
            assert text not in found, text
            found[text] = [value for name, value in fields.items() if name.startswith("msgstr")]
    return found


def compiled(path: Path) -> dict[object, str]:
    """The translations of a ``.mo`` file, by context, text and form."""
    with path.open("rb") as file:
        catalogue: dict[object, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key: value for key, value in catalogue.items() if key}
